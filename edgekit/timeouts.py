"""Waits of this machine, in seconds, and their reasons: for boards, other programs and files.

``edgekit_device`` has the waits of the board, each in the module that waits.
"""

from __future__ import annotations

# --- connecting

#: Until TCP's connection is there.
CONNECT_S = 10.0
#: Until SSH's server has sent its version: it may look up names first.
BANNER_S = 15.0
#: Until a login is accepted or refused.
AUTH_S = 20.0
#: Silence after which a keep-alive message is sent to a board.
KEEPALIVE_S = 10.0
#: Silence, or data without an acknowledgement, after which a link counts as cut.
SILENCE_S = 30.0
#: Until SSH's channel is open: a board under load still answers within it.
OPEN_S = 20.0
#: Time of retries for a channel: a board that allows few may still be closing the previous one.
CLOSING_S = 5.0
#: Between two such tries.
CLOSING_POLL_S = 0.05
#: Until SSH's key agent signs: it may ask its user.
KEY_AGENT_S = 60.0
#: Until ``ssh -G`` has read a user's configuration: "Match exec" runs commands.
SSH_CONFIG_S = 60.0
#: Until ssh-keygen has read a file of host keys.
HOST_KEYS_S = 30.0
#: Until edgekit's own sshd listens: it makes a host key first.
SSHD_READY_S = 15.0

# --- a board's commands

#: Until Python on the board has started edgekit_device: slow storage, the first time.
AGENT_START_S = 120.0
#: Until edgekit_device has ended after the end of its input.
AGENT_END_S = 10.0
#: Silence after which the command of a small query counts as stuck.
SHORT_S = 120.0
#: The same for a command whose caller gives no wait: it reads or writes a small file.
COMMAND_S = 60.0
#: The same for work on whole networks, which has no output until it is done.
WORK_S = 600.0
#: The same for work that reports its progress.
LONG_S = 1800.0
#: Until edgekit gives up a command that does not read its input. A board's command waits a minute
#: for a lock (``LOCK_WAIT_S`` of the loader), and then reports the held lock itself.
STALL_S = 75.0
#: Until the output of a command that has ended is read.
DRAIN_S = 30.0
#: Until a local program has ended after a request to end.
GRACE_S = 2.0
#: The same for a program with dependants (sshd, a jump's ssh), and for a solver's thread, which
#: checks for a request to end only now and then.
END_S = 5.0
#: Until a connection's thread has ended after it closed its channels.
LAST_WORDS_S = 1.0
#: Silence of a board that samples itself, beyond the interval of the samples.
SAMPLE_SILENT_S = 20.0
#: Until a board's sampling has ended after the last sample.
SAMPLE_END_S = 20.0

# --- jobs

#: Time that a board waits for news of a job before it answers without news.
NEWS_S = 20.0
#: Time that a board gathers news for one answer: short at first, since most jobs are short.
GATHER_S = (0.5, 0.5, 1.0, 2.0)
#: Between tries to connect again after a connection was cut.
RECONNECT_S = (1.0, 2.0, 5.0, 10.0, 30.0)
#: Time of these tries together: a board restarts within it.
RECONNECT_PATIENCE_S = 600.0
#: Time that a cancelled job may run until it is killed.
CANCEL_S = 10.0
#: The same for a trial of ``edgekit tune``: a user waits for the end of a Ctrl-C.
CANCEL_TRIAL_S = 3.0

# --- watching a board (``edgekit top``)

#: Between two queries of a board's served releases: they cost more than a sample.
APPS_EVERY_S = 10.0
#: Between tries to connect again.
WATCH_AGAIN_S = 2.0

# --- files and programs of this machine

#: Until another program opens a pipe that is to be read: the shell of ``<(command)`` does at once.
WRITER_S = 5.0
#: Until another process lets go of the history: it may be writing thousands of results.
HISTORY_S = 30.0
#: Until git has named a folder's commit: it reads every file of a tree that it has not seen.
#: Without an answer a result is stored without its commit.
GIT_S = 10.0
#: Until ssh-keygen has signed or verified: a key on hardware waits for its owner.
SIGN_S = 120
#: Time of trtexec besides measuring, for loading an engine and for the loader.
TRTEXEC_START_S = 120.0
#: Processor time of NVIDIA's parser for a model: seconds for usual models; a crafted model can keep
#: the parser busy for ever.
PARSER_CPU_S = 300
#: Wall-clock time for the same: the machine may have other work, too.
PARSER_S = 900
#: Until PyTorch has exported a network: a large one takes many minutes.
EXPORT_S = 3600
#: Processor time for the same: several cores may work.
EXPORT_CPU_S = 7200
#: Time between a search's reports of its progress.
REPORT_S = 0.25
#: Silence of ``edgekit tune`` until it repeats its current step: a longer pause looks like a hang.
TUNE_SILENT_S = 4.0

# --- fleets

#: Time that a rollout retries an unreachable board: a board restarts within it.
ROLLOUT_RETRIES_S = 600.0
#: Until a rollout's lock counts as taken: a query of the rollout's driver holds it for a moment.
ROLLOUT_LOCK_S = 0.2

#: Between two looks at whether a rollout is to stop.
TICK_S = 0.2
#: Until ansible-inventory has listed the boards; an inventory may be a program that asks a cloud.
ANSIBLE_INVENTORY_S = 120
