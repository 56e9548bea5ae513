"""Power cuts: what a server had acknowledged must be there, whatever the disk had not been told to keep.

A kill leaves everything that was written; a power cut leaves what was synced, and of the rest whatever it likes. So a
test that kills proves nothing about a sync that is missing. This suite does it without a power switch:

1. A server lives for some seconds (`workload`): writers and readers of every protocol (`clients`), an operator who
   makes, changes, trims and deletes logs and subscribes webhooks, the command line beside it (`operators`). Its
   segments are so small that they roll, are sealed and dropped meanwhile (`watched`). It is stopped in order once, and
   killed once.
2. A small library that is loaded before libc (`recorder/recorder.c`) records, for the server and its children, every
   change below the data directory and every sync, in one order (`recording`). Into the same order the driver puts
   marks: what was asked for, what was acknowledged (`ledger`). Nothing is skipped: told from the beginning, the
   record makes byte for byte the directory that is there, which is a test.
3. `disk` is a model of a disk that is told the record. Cut anywhere, it writes down a directory that may be left:
   names and bytes that were synced, and of later ones a random part, in sectors or pages, later ones without earlier
   ones, sizes without their bytes (`leaving`). It keeps to what POSIX promises and no more (*strict*), or to what ext4
   and XFS do with their journal (*ordered*). Cuts are chosen so that what is seldom is cut as often as the rest
   (`states`).
4. `check` opens each such directory as a server would, twice: acknowledged events are there once, under their
   numbers, whole; nothing is there that was refused or never sent; numbers are not given again; logs, settings, users
   and subscriptions are those that were acknowledged, trims stay, consumers' positions are among those that they may
   have, a commit that was answered is answered the same again; `headwater check` has no complaint. `whole` starts a
   server on some of them, and asks by every protocol. For some, the power fails a second time while they are being
   repaired.
5. That it would notice is tested too: with the syncs of segments, of directories, of META, of the state or of staged
   rows left out, states must fail.

Three hundred states are part of `make test`; `make power` takes 5,000, of runs of their own. A state that fails is
told with its seed and what was done last; its record is kept, so that `POWER_RECORD=FOLDER POWER_SEED=N python -m
pytest tests/power` makes it again, and `POWER_KEEP=DIRECTORY` keeps what was left.

A recorder by LD_PRELOAD, and not a file system in user space or a tracer, because it needs no right that a container
may lack, and costs the server little. It sees what goes through libc, and so whatever Python, SQLite and Arrow write
here; a program that made system calls itself would be noticed by the comparison in 2. Memory that is mapped to be
written is not seen: the one such file is SQLite's `-shm`, which is made anew after a crash.
"""
