"""Load on a server, by protocol, and judges of what came of it. `python -m tests.load KIND`:

| kind | what happens | who judges |
| --- | --- | --- |
| `steady` | clients of all protocols, on a server that is there (`--http`, `--amqp`, `--flight`, `--user`) | ledger |
| `soak` | clients of all protocols; the server is left alone, and killed again and again | ledger, vitals |
| `chaos` | the same on three servers of a home, while servers, network and database fail | ledger, copies |
| `street` | one hostile client of each protocol in turn, beside good neighbours | ledger |
| `hostile` | many peers announce without end or do not read, in a cgroup of 512 MiB | ledger, memory, holds |

A load needs addresses and credentials (`place`) and clients that anybody can use; what starts servers is apart
(`server`, `chaos/members`). `--seed` repeats what chance decides in a run, but not how threads and processes meet.
`tests.power` takes its writers, readers and payloads from here.
"""
