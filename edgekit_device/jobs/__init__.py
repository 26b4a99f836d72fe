"""Long work that outlives the connection that started it. Start with ``Job`` in ``job``;
``edgekit_device.job_runner`` starts and runs jobs.
"""
