// One operation with rhea, by the contract in ../README.md: `client.js OPERATION JSON`.
'use strict';

const crypto = require('crypto');
const fs = require('fs');
const rhea = require('rhea');

const DATA_SHOWN_MAX = 1024;
const CLOSING_MS_MAX = 2000;
const types = rhea.types;
const KINDS = {
    symbol: types.wrap_symbol,
    ubyte: types.wrap_ubyte,
    ushort: types.wrap_ushort,
    uint: types.wrap_uint,
    ulong: types.wrap_ulong,
    byte: types.wrap_byte,
    short: types.wrap_short,
    int: types.wrap_int,
    float: types.wrap_float,
    timestamp: types.wrap_timestamp,
    uuid: (text) => types.wrap_uuid(Buffer.from(text.replaceAll('-', ''), 'hex')),
    binary: (text) => types.wrap_binary(Buffer.from(text, 'base64')),
};

function say(event, more = {}) {
    fs.writeSync(1, JSON.stringify({event, ...more}) + '\n');
}

/** JSON to AMQP. */
function typed(value) {
    if (Array.isArray(value)) return types.wrap_list(value.map(typed));
    if (typeof value === 'number') return Number.isInteger(value) ? types.wrap_long(value) : types.wrap_double(value);
    if (value === null || typeof value !== 'object') return value;
    const names = Object.keys(value);
    if (names.length === 1 && names[0].startsWith('$')) {
        const kind = names[0].slice(1), inner = value[names[0]];
        return kind === 'described' ? described(inner[0], typed(inner[1])) : KINDS[kind](inner);
    }
    return types.wrap_map(mapped(value));
}

function described(descriptor, value) {
    return types.wrap_described(value, descriptor);
}

/** A map's values to AMQP; its keys are made symbols or strings by whoever takes it. */
function mapped(map) {
    return Object.fromEntries(Object.entries(map || {}).map(([name, value]) => [name, typed(value)]));
}

/** AMQP, as far as rhea has not unwrapped it already, to JSON. */
function shown(value) {
    if (value === undefined || value === null || value.value === null) return null;
    if (Buffer.isBuffer(value)) return {$binary: value.toString('base64')};
    if (value instanceof Date) return {$timestamp: value.getTime()};
    if (Array.isArray(value)) return value.map(shown);
    if (value.type && value.type.typecode !== undefined) return typedShown(value);
    if (typeof value === 'object') {
        return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, shown(inner)]));
    }
    return value;
}

function typedShown(value) {
    if (value.descriptor) {
        const bare = Object.assign(Object.create(Object.getPrototypeOf(value)), value, {descriptor: undefined});
        return {$described: [shown(value.descriptor), shown(bare)]};
    }
    const name = value.type.name;
    if (name.startsWith('Ulong') || name === 'SmallUlong') return {$ulong: Number(value.value)};
    if (name.startsWith('Sym')) return {$symbol: String(value.value)};
    if (name === 'Timestamp') return {$timestamp: Number(value.value)};
    return shown(types.unwrap(value));
}

function pattern(size) {
    return Buffer.from(Uint8Array.from({length: size}, (_, at) => at % 251));
}

function messageOf(form) {
    const message = {durable: form.durable !== false, ...plainProperties(form.properties || {})};
    if (form.size !== undefined) message.body = rhea.message.data_section(pattern(form.size));
    else if (form.data !== undefined) message.body = rhea.message.data_section(Buffer.from(form.data, 'base64'));
    else if (form.sequence !== undefined) message.body = rhea.message.sequence_section(form.sequence.map(typed));
    else message.body = form.value === undefined ? null : typed(form.value);
    if (form.application_properties) message.application_properties = mapped(form.application_properties);
    if (form.message_annotations) message.message_annotations = mapped(form.message_annotations);
    if (form.delivery_annotations) message.delivery_annotations = mapped(form.delivery_annotations);
    return message;
}

function plainProperties(properties) {
    return Object.fromEntries(Object.entries(properties).map(([name, value]) => [name, typed(value)]));
}

function messageShown(message) {
    const answer = {
        durable: message.durable === true,
        delivery_annotations: shown(message.delivery_annotations) || {},
        message_annotations: shown(message.message_annotations) || {},
        application_properties: shown(message.application_properties) || {},
        properties: {},
    };
    for (const name of ['message_id', 'correlation_id', 'to', 'subject', 'content_type', 'group_id']) {
        if (message[name] !== undefined && message[name] !== null) answer.properties[name] = shown(message[name]);
    }
    const body = message.body;
    if (body && body.typecode === 0x75) {
        const parts = body.multiple ? body.content : [body.content];
        const data = Buffer.concat(parts);
        Object.assign(answer, {size: data.length, sha256: crypto.createHash('sha256').update(data).digest('hex')});
        if (data.length <= DATA_SHOWN_MAX) answer.data = data.toString('base64');
    } else if (body && body.typecode === 0x76) {
        answer.sequence = shown(body.content);
    } else {
        answer.value = shown(body);
    }
    return answer;
}

function filterSet(filters) {
    const entries = {};
    for (const each of filters) {
        let value = each.map ? types.wrap_symbolic_map(mapped(each.map)) : typed(each.value);
        if (each.descriptor !== undefined) value = described(each.descriptor, value);
        entries[each.name] = value;
    }
    return entries;
}

/** What the operations share: a connection, its errors, and the end. */
class Operation {
    constructor(request) {
        this.request = request;
        this.isOver = false;
        const url = new URL(request.url);
        const options = {
            host: url.hostname,
            port: Number(url.port),
            reconnect: false,
            username: request.user === undefined ? 'anonymous' : request.user,
            desired_capabilities: ['AMQP_EVENT_STREAMS_V1_0'],
        };
        if (request.user !== undefined) options.password = request.password;
        if (request.idle_timeout_ms !== undefined) options.idle_time_out = request.idle_timeout_ms;
        if (request.max_frame_size !== undefined) options.max_frame_size = request.max_frame_size;
        if (url.protocol === 'amqps:') {
            Object.assign(options, {transport: 'tls', servername: url.hostname, rejectUnauthorized: true});
            if (request.ca) options.ca = [fs.readFileSync(request.ca)];
        }
        this.container = rhea.create_container(request.container_id ? {id: request.container_id} : {});
        this.connection = this.container.connect(options);
        this.on('connection_open', () => this.opened());
        for (const scope of ['connection', 'session', 'sender', 'receiver']) {
            const kind = scope === 'sender' || scope === 'receiver' ? 'link' : scope;
            this.on(`${scope}_error`, (context) => this.fail(kind, context.error || context[scope].error));
            this.on(`${scope}_close`, (context) => this.closed(kind, context.error || context[scope].error));
        }
        this.on('disconnected', (context) => this.disconnected(context.error));
        this.on('protocol_error', (error) => this.fail('transport', {description: String(error)}));
        this.on('error', (error) => this.fail('transport', {condition: error.condition, description: String(error)}));
        this.connection.on('connection_error', () => {});
        this.timer = setTimeout(() => { say('timeout'); this.finish(); }, 1000 * (request.timeout_s || 20));
    }

    on(event, callback) {
        this.connection.on(event, (context) => { if (!this.isDone) callback(context); });
    }

    opened() {
        const open = this.connection.remote.open;
        say('opened', {
            container_id: open.container_id,
            offered_capabilities: [].concat(shown(open.offered_capabilities) || []),
            properties: shown(open.properties) || {},
            idle_timeout_ms: open.idle_time_out || 0,
            max_frame_size: open.max_frame_size,
        });
        this.begin();
    }

    begin() {
        setTimeout(() => this.finish(), 1000 * (this.request.hold_s || 0));
    }

    attachOptions() {
        const options = {snd_settle_mode: this.request.settled ? 1 : 0};
        if (this.request.link_properties) options.properties = mapped(this.request.link_properties);
        if (this.request.rcv_second) options.rcv_settle_mode = 1;
        if (this.request.link_name) options.name = this.request.link_name;
        return options;
    }

    attached(link, name) {
        const attach = link.remote.attach;
        const terminus = shown(attach[name]) === null ? null : attach[name];
        say('attached', {
            is_refused: !terminus,
            properties: shown(attach.properties) || {},
            filters: (terminus && shown(terminus.filter)) || {},
            max_message_size: attach.max_message_size === undefined ? 0 : Number(attach.max_message_size),
            snd_settle_mode: attach.snd_settle_mode,
            rcv_settle_mode: attach.rcv_settle_mode,
        });
    }

    fail(scope, error) {
        if (this.isOver) return;
        error = error || {};
        const isSasl = !this.connection.remote.open && /authenticat|unauthorized/i.test(String(error.condition) + error.description);
        say('error', {
            scope: isSasl ? 'sasl' : scope,
            condition: error.condition === undefined ? null : shown(error.condition),
            description: error.description === undefined ? null : error.description,
            info: shown(error.info) || {},
        });
        this.finish();
    }

    closed(scope, error) {
        if (scope === 'connection' && this.isOver) return this.end();
        this.fail(scope, error);
    }

    disconnected(error) {
        if (!this.isOver) {
            const text = String((error && error.message) || error || 'disconnected');
            const isTls = /certificate|ssl|tls/i.test(text + ((error && error.code) || ''));
            this.fail(isTls ? 'tls' : 'transport', {description: text});
        }
        this.end();
    }

    finish() {
        if (this.isOver) return;
        this.isOver = true;
        clearTimeout(this.timer);
        if (this.connection.is_open()) this.connection.close();
        setTimeout(() => this.end(), CLOSING_MS_MAX);
        if (!this.connection.is_open() && !this.connection.remote.open) this.end();
    }

    end() {
        if (this.isDone) return;
        this.isDone = true;
        say('done');
        process.exit(0);
    }
}

/** Sends messages and tells what became of them. */
class Send extends Operation {
    begin() {
        const {message = {}, count = 1} = this.request;
        const forms = this.request.messages || Array(count).fill(message);
        this.messages = forms.map(messageOf);
        this.next = 0;
        this.outcomes = {};
        this.indexes = new Map();
        this.on('sender_open', (context) => this.attached(context.sender, 'target'));
        this.on('sendable', () => this.send());
        for (const outcome of ['accepted', 'rejected', 'released', 'modified']) {
            this.on(outcome, (context) => this.decided(outcome, context.delivery));
        }
        const target = this.request.address === null ? {} : {address: this.request.address};
        this.sender = this.connection.open_sender({target, ...this.attachOptions()});
    }

    send() {
        while (this.sender.sendable() && this.next < this.messages.length) {
            const delivery = this.sender.send(this.messages[this.next]);
            this.indexes.set(delivery.id, this.next++);
            if (this.request.settled) this.count('settled');
        }
    }

    decided(outcome, delivery) {
        if (outcome === 'released' && delivery.remote_state && delivery.remote_state.constructor.composite_type === 'modified') {
            outcome = 'modified';
        }
        if (outcome !== 'accepted') {
            const error = outcome === 'rejected' ? delivery.remote_state.error || {} : {};
            say('outcome', {
                index: this.indexes.get(delivery.id),
                outcome,
                condition: error.condition === undefined ? null : shown(error.condition),
                description: error.description === undefined ? null : error.description,
            });
        }
        this.count(outcome);
    }

    count(outcome) {
        this.outcomes[outcome] = (this.outcomes[outcome] || 0) + 1;
        const total = Object.values(this.outcomes).reduce((sum, each) => sum + each, 0);
        if (total === this.messages.length) {
            say('sent', this.outcomes);
            setTimeout(() => this.finish(), 1000 * (this.request.hold_s || 0));
        }
    }
}

/** Receives messages, settles them as asked, and drains where asked. */
class Receive extends Operation {
    begin() {
        const {credit = 100, drain = false} = this.request;
        this.received = 0;
        this.count = this.request.count || 1;
        this.on('receiver_open', (context) => this.attachedReceiver(context.receiver, credit, drain));
        this.on('message', (context) => this.message(context));
        this.on('receiver_drained', () => this.drained());
        this.on('settled', () => { if (this.request.rcv_second) say('settled_by_peer'); });
        const source = {address: this.request.address};
        if (this.request.filters) source.filter = filterSet(this.request.filters);
        if (this.request.durable_terminus) Object.assign(source, {durable: 2, expiry_policy: 'never'});
        const options = {source, ...this.attachOptions(), credit_window: 0, autoaccept: false};
        this.receiver = this.connection.open_receiver(options);
    }

    attachedReceiver(receiver, credit, drain) {
        this.attached(receiver, 'source');
        receiver.add_credit(credit);
        this.left = credit;
        if (drain) receiver.drain_credit();
    }

    message(context) {
        if (this.isOver || this.isHeld) return;
        this.received++;
        this.left--;
        if (this.request.quiet !== true) say('message', messageShown(context.message));
        this.settle(context.delivery);
        const {credit = 100, drain = false} = this.request;
        if (this.received === this.count && !drain) {
            say('received', {count: this.received});
            this.isHeld = true;
            setTimeout(() => this.finish(), 1000 * (this.request.hold_s || 0));
        } else if (!drain && this.left < (credit + 1) / 2) {
            this.receiver.add_credit(credit - this.left);
            this.left = credit;
        }
    }

    settle(delivery) {
        const outcome = this.request.outcome || 'accept';
        if (delivery.remote_settled || outcome === 'none') return;
        if (outcome === 'release') delivery.release();
        else if (outcome === 'modify') delivery.release({delivery_failed: true, undeliverable_here: true});
        else if (outcome === 'reject') delivery.reject({condition: 'interop:rejected', description: 'as asked'});
        else delivery.accept();
    }

    drained() {
        say('drained', {received: this.received});
        this.finish();
    }
}

/** Sends requests, one after the other's answer, with a node made on demand to reply to. */
class Request extends Operation {
    begin() {
        this.forms = [...this.request.messages];
        this.on('receiver_open', (context) => this.openSender(context.receiver));
        this.on('sender_open', (context) => this.attached(context.sender, 'target'));
        this.on('sendable', () => { if (!this.isAsking) this.ask(); });
        this.on('message', (context) => this.answered(context));
        this.receiver = this.connection.open_receiver({source: {dynamic: true}, credit_window: 10});
    }

    openSender(receiver) {
        this.attached(receiver, 'source');
        this.replyTo = receiver.source.address;
        this.sender = this.connection.open_sender(this.request.address);
    }

    ask() {
        this.isAsking = true;
        this.sender.send({...messageOf(this.forms.shift()), reply_to: this.replyTo});
    }

    answered(context) {
        say('message', messageShown(context.message));
        if (this.forms.length) this.ask();
        else this.finish();
    }
}

const OPERATIONS = {connect: Operation, send: Send, receive: Receive, request: Request};
new OPERATIONS[process.argv[2]](JSON.parse(process.argv[3]));
