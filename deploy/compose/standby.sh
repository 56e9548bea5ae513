#!/bin/bash
# A standby: it copies the database of PRIMARY once, and then follows it.
set -euo pipefail
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    mkdir -p -m 0700 "$PGDATA"
    pg_basebackup --pgdata "$PGDATA" --dbname "$PRIMARY" --write-recovery-conf --wal-method stream --checkpoint fast
fi
exec "$@"
