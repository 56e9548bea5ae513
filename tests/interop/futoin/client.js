// FutoIn's own client library, led by lines of JSON: one command per line in, one outcome per line out.
//
//     node client.js '{"url": "secure+ws://...", "credentials": "alice:...", "coder": "JSON", "options": {...}}'
'use strict';

const path = require('path');
const readline = require('readline');
const Module = require('module');

const load = Module.createRequire(path.join(process.env.FUTOIN_NODE_MODULES, 'x.js'));
const $as = load('futoin-asyncsteps');
const { AdvancedCCM } = load('futoin-invoker');
const eventstream = (name) => load(`futoin-eventstream/${name}`);

const config = JSON.parse(process.argv[2]);
const tell = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);
const options = (more = {}) => Object.assign(
    { limitZone: 'unlimited', coder: config.coder, secureChannel: true }, config.options || {}, more,
);
const ccm = new AdvancedCCM();
let failures = 0;
let eventMs = 0;

function receiver(Base) {
    return class extends Base {
        _onEvents(as, events) {
            tell({ pushed: events });
            if (failures > 0) {
                failures -= 1;
                as.error('Refused', 'not now');
            }
            if (eventMs > 0) {
                as.waitExternal();
                setTimeout(() => as.state && as.success(), eventMs * events.length);
            }
        }
    };
}

const COMMANDS = {
    add: (as, { type, data }) => ccm.iface('gen').addEvent(as, type, data),
    register: (as, { component }) => ccm.iface('poll').registerConsumer(as, component),
    poll: (as, { component, last_id = null, want = null }) =>
        ccm.iface('poll').pollEvents(as, component, last_id, want),
    ping: (as, { echo }) => ccm.iface('poll').ping(as, echo),
    receive: (as, { component, want = null, fail = 0, event_ms = 0 }) => {
        failures = fail;
        eventMs = event_ms;
        const Base = eventstream(component === 'LIVE' ? 'LiveReceiver' : 'ReliableReceiver');
        const its = new (receiver(Base))(new AdvancedCCM());
        its.on('workerError', (...args) => tell({ worker_error: args.slice(0, 2) }));
        its.on('ready', () => tell({ ready: component }));
        its.start(config.url, config.credentials, options({ component, want }));
        as.add((as) => as.success(true));
    },
};

$as().add((as) => {
    for (const [name, Face] of [['gen', 'GenFace'], ['poll', 'PollFace']]) {
        eventstream(Face).register(as, ccm, name, config.url, config.credentials, options(config[name] || {}));
    }
    as.add((as) => {
        tell({ started: true });
        readline.createInterface({ input: process.stdin }).on('line', (line) => {
            const command = JSON.parse(line);
            $as().add((as) => {
                COMMANDS[command.do](as, command);
                as.add((as, result) => tell({ result }));
            }, (as, err) => tell({ error: err, description: as.state.error_info })).execute();
        }).on('close', () => process.exit(0));
    });
}, (as, err) => {
    tell({ failed: err, description: String(as.state.last_exception) });
    process.exit(1);
}).execute();
