"""A rollout for Ansible: written as a folder, or run by ``ansible-playbook``. The role lies in
``role``. Start with ``export_ansible`` in ``export``.
"""
