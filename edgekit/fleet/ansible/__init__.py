"""Rollouts by Ansible: exported as a folder, or run with ``ansible-playbook``. The role is in
``role``. Start with ``export_ansible`` in ``export``.
"""
