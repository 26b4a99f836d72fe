"""Long work that outlives the connection that started it. Start with ``Job`` in ``job``;
jobs are started and run by ``edgekit_device.job_runner``.
"""
