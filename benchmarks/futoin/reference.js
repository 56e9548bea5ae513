// The FutoIn project's own event stream server on SQLite, to be measured beside Headwater.
//
//     node reference.js DATABASE_FILE SYNCHRONOUS
//
// It serves adding, polling and pushing over WebSocket, and, because a server of its kind with pushing refuses polls over
// HTTP, adding and polling over HTTP on a second port. The first line that it prints has both ports.
'use strict';

const path = require('path');
const fs = require('fs');
const Module = require('module');

const modules = process.env.FUTOIN_NODE_MODULES;
const load = Module.createRequire(path.join(modules, 'x.js'));
const $as = load('futoin-asyncsteps');
const { AdvancedCCM } = load('futoin-invoker');
const NodeExecutor = load('futoin-executor/NodeExecutor');
const LegacySecurityProvider = load('futoin-executor/LegacySecurityProvider');
const DBAutoConfig = load('futoin-database/AutoConfig');
const DBGenService = load('futoin-eventstream/DBGenService');
const DBPollService = load('futoin-eventstream/DBPollService');
const DBPushService = load('futoin-eventstream/DBPushService');

const [file, synchronous] = process.argv.slice(2);
const complain = (...args) => console.error('notExpected', args[0], args[1]);
process.on('uncaughtException', (error) => console.error('uncaught', error.message));

function executor(ccm, port, securityProvider) {
    const its = new NodeExecutor(ccm, {
        httpAddr: '127.0.0.1', httpPort: port, httpPath: '/ftn', secureChannel: true, securityProvider,
        limitConf: { default: { concurrent: 1e6, max_queue: 1e6, rate: 1e9, period_ms: 1000, burst: 1e6 } },
    });
    its.on('notExpected', complain);
    return its;
}

$as().add((as) => {
    const ccm = new AdvancedCCM();
    const pragmas = ['journal_mode = WAL', `synchronous = ${synchronous}`];
    DBAutoConfig(as, ccm, { evt: { raw: { pragmas } } }, { DB_EVT_TYPE: 'sqlite', DB_EVT_SOCKET: file });
    as.add((as) => {
        const schema = fs.readFileSync(path.join(modules, 'futoin-eventstream/sql/active/sqlite/V18.1__Tables.sql'), 'utf8');
        for (const statement of schema.replace(/--[^\n]*\n/g, '').split(';')) {
            if (statement.trim()) {
                as.add((as) => ccm.db('evt').query(as, statement));
            }
        }
    });
    as.add((as) => {
        const security = new LegacySecurityProvider(as, ccm);
        as.add((as) => {
            security.addUser('alice', 'alices-secret', {});
            const [ws_port, http_port] = [Number(process.env.WS_PORT), Number(process.env.HTTP_PORT)];
            for (const [port, Service] of [[ws_port, DBPushService], [http_port, DBPollService]]) {
                const its = executor(ccm, port, security);
                DBGenService.register(as, its);
                Service.register(as, its, {});
            }
            as.add((as) => console.log(`listening ${ws_port} ${http_port}`));
        });
    });
}, (as, err) => {
    console.error(err, as.state.error_info, as.state.last_exception);
    process.exit(1);
}).execute();
