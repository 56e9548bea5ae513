#!/bin/bash
# Run once by the image of PostgreSQL, in a new database: the roles, and the standby that commits wait for from now on.
set -euo pipefail
psql --set ON_ERROR_STOP=1 --set headwater="$HEADWATER_PASSWORD" --set replication="$REPLICATION_PASSWORD" \
    --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
CREATE ROLE headwater LOGIN PASSWORD :'headwater';
CREATE ROLE replication LOGIN REPLICATION PASSWORD :'replication';
ALTER SYSTEM SET synchronous_standby_names = 'db_2';
SQL
echo 'host replication replication all scram-sha-256' >> "$PGDATA/pg_hba.conf"
