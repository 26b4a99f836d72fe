"""What is solved with OR-Tools' CP-SAT, in a process of its own, because OR-Tools and highspy
cannot be loaded into one. Modules named ``..._model`` run in that process only.
Start with ``run_worker`` in ``process`` and ``solve_steps`` in ``running_order``.
"""
