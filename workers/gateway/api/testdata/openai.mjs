// Drives a running api adapter with the official client. Arguments: base URL, key, and the URL at which the test
// takes orders (release held turns, stop the adapter). Exits with 0 if everything was as a user of the client expects.
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const [baseURL, apiKey, control] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
let refused;
const wasRefused = new Promise((resolve) => (refused = resolve));
const patient = new OpenAI({ // repeats by itself, as by default
  baseURL,
  apiKey,
  fetch: async (...args) => {
    const r = await fetch(...args);
    if (r.status === 429) refused();
    return r;
  },
});
const order = (path) => fetch(control + path).then((r) => r.text());
const ask = (content, more = {}, options = {}) =>
  client.chat.completions.create({ model: 'hermes-agent', messages: [{ role: 'user', content }], ...more }, options);
const keyed = (key) => ({ headers: { 'Idempotency-Key': key } });

const tests = {
  async models() {
    const all = [];
    for await (const m of client.models.list()) all.push(m.id);
    assert.deepEqual(all, ['hermes-agent']);
    assert.equal((await client.models.retrieve('hermes-agent')).object, 'model');
    await assert.rejects(client.models.retrieve('gpt-x'), (e) => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found');
  },

  async whole() {
    const { data, response } = await ask('hi').withResponse();
    assert.equal(data.object, 'chat.completion');
    assert.equal(data.choices.length, 1);
    assert.equal(data.choices[0].message.role, 'assistant');
    assert.equal(data.choices[0].message.content, 'answer to hi');
    assert.equal(data.choices[0].finish_reason, 'stop');
    assert.equal(data.usage.total_tokens, data.usage.prompt_tokens + data.usage.completion_tokens);
    const session = response.headers.get('x-hermes-session-id');
    const next = await ask('more', {}, { headers: { 'X-Hermes-Session-Id': session } }).withResponse();
    assert.equal(next.response.headers.get('x-hermes-session-id'), session);
    assert.equal(next.data.hermes.session_id, session);
  },

  async stream() {
    const chunks = [];
    for await (const c of await ask('words', { stream: true, stream_options: { include_usage: true } })) chunks.push(c);
    assert.equal(chunks[0].choices[0].delta.role, 'assistant');
    assert.equal(chunks.map((c) => c.choices[0]?.delta.content ?? '').join(''), 'one two three');
    assert.deepEqual(chunks.flatMap((c) => c.choices.map((x) => x.finish_reason)).filter(Boolean), ['stop']);
    const last = chunks.at(-1);
    assert.deepEqual(last.choices, []);
    assert.equal(last.usage.completion_tokens, 3);
    assert.ok(chunks.slice(0, -1).every((c) => c.usage === null));
    assert.equal(new Set(chunks.map((c) => c.id)).size, 1);
  },

  async helper() {
    const runner = client.chat.completions.stream({ model: 'hermes-agent', messages: [{ role: 'user', content: 'tools' }] });
    const deltas = [];
    runner.on('content', (d) => deltas.push(d));
    const final = await runner.finalChatCompletion();
    assert.equal(final.choices[0].message.content, deltas.join(''));
    assert.equal(final.choices[0].message.content, 'Let me look.\n\nFound it.');
    assert.equal(final.choices[0].finish_reason, 'stop');
  },

  async errors() {
    const wrong = new OpenAI({ baseURL, apiKey: 'wrong', maxRetries: 0 });
    await assert.rejects(wrong.models.list(), (e) => e instanceof OpenAI.AuthenticationError && e.code === 'invalid_api_key');
    await assert.rejects(ask('x', { n: 2 }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'n' && e.code === 'unsupported_parameter');
    await assert.rejects(ask('x', { tools: [{ type: 'function', function: { name: 'f' } }] }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'tools');
    await assert.rejects(ask([{ type: 'image_url', image_url: { url: 'https://x' } }]), (e) => e instanceof OpenAI.BadRequestError && e.code === 'unsupported_content');
    await assert.rejects(ask(''), (e) => e instanceof OpenAI.BadRequestError && /empty/.test(e.message));
    await assert.rejects(ask('x'.repeat(11 << 20)), (e) => e instanceof OpenAI.APIError && e.status === 413);
    await assert.rejects(client.post('/nothing', { body: {} }), (e) => e instanceof OpenAI.NotFoundError && e.code === 'unknown_url');
    await assert.rejects(client.responses.create({ model: 'hermes-agent', input: 'x' }), (e) => e instanceof OpenAI.NotFoundError);
    await assert.rejects(ask('x', {}, { headers: { 'X-Hermes-Session-Id': 'none' } }), (e) => e instanceof OpenAI.NotFoundError && e.code === 'session_not_found');
  },

  async failed() {
    const r = await ask('fail');
    assert.equal(r.choices[0].message.content, 'The provider refuses the key.');
    assert.equal(r.hermes.outcome, 'failed');
  },

  async idempotency() {
    const first = await ask('count', {}, keyed('k1'));
    const again = await ask('count', {}, keyed('k1'));
    assert.equal(again.id, first.id);
    assert.equal(again.choices[0].message.content, first.choices[0].message.content);
    let streamed = '';
    for await (const c of await ask('count', { stream: true }, keyed('k1'))) streamed += c.choices[0]?.delta.content ?? '';
    assert.equal(streamed, first.choices[0].message.content);
    const other = await ask('count', {}, keyed('k2'));
    assert.notEqual(other.choices[0].message.content, first.choices[0].message.content);
    await assert.rejects(ask('other', {}, keyed('k1')), (e) => e instanceof OpenAI.UnprocessableEntityError && e.code === 'idempotency_key_reused');
    const both = await Promise.all([ask('count', {}, keyed('k3')), ask('count', {}, keyed('k3'))]);
    assert.equal(both[0].choices[0].message.content, both[1].choices[0].message.content);
  },

  async busy() {
    const held = [ask('hold'), ask('hold')];
    await order('/held?n=2');
    await assert.rejects(ask('x'), (e) => e instanceof OpenAI.RateLimitError && e.code === 'too_many_runs');
    const later = patient.chat.completions.create({ model: 'hermes-agent', messages: [{ role: 'user', content: 'late' }] });
    await wasRefused;
    await order('/release');
    assert.equal((await later).choices[0].message.content, 'answer to late');
    await Promise.all(held);
  },

  async abort() {
    const s = await ask('endless', { stream: true });
    let n = 0;
    for await (const c of s) if (c.choices[0]?.delta.content && ++n === 2) break; // aborts the request
    assert.equal(await order('/interrupted'), 'endless');
    const controller = new AbortController();
    const p = ask('endless', {}, { signal: controller.signal });
    await order('/endless');
    controller.abort();
    await assert.rejects(p, (e) => e instanceof OpenAI.APIUserAbortError);
    assert.equal(await order('/interrupted'), 'endless');
  },

  async resumed() {
    let text = '';
    for await (const c of await ask('die', { stream: true })) {
      text += c.choices[0]?.delta.content ?? '';
      if (text === 'half of ') order('/die');
    }
    assert.equal(text, 'half of the answer');
  },

  async stopped() {
    const s = await ask('stop', { stream: true }, keyed('k9'));
    await assert.rejects(
      async () => {
        for await (const c of s) if (c.choices[0]?.delta.content) order('/stop');
      },
      (e) => e instanceof OpenAI.APIError && e.code === 'answer_lost',
    );
  },
};

for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
    console.log('ok', name);
  } catch (e) {
    console.log('FAILED', name);
    console.error(e);
    process.exit(1);
  }
}
