// What the page asks of the server's public API, and what can go wrong, in words.

import { loadKey } from "./store.js";

const ROOT = location.origin + location.pathname; // without a name and password of the URL

export class Problem extends Error {
    // { status, code, param, retryAfter, progress }, as far as they are known
    constructor(message, details) {
        super(message);
        Object.assign(this, details);
    }

    get needsKey() {
        return this.status === 401 || this.code === "key_lacks_scope";
    }
}

// The name that answers carry, and the size of the context.
export async function servedModel() {
    const list = await (await ask("v1/models")).json();
    return { name: list.data[0].id, context: list.data[0].max_model_len };
}

// Null once the server takes requests; before, how much of the model is there, from 0 to 1.
export async function loadingProgress() {
    try {
        await ask("ready");
        return null;
    } catch (problem) {
        if (problem.code !== "loading" && problem.code !== "restarting") throw problem;
        return problem.progress ?? 0;
    }
}

// How many tokens a conversation has, and how many the context holds.
export async function numTokens(messages, signal) {
    const body = JSON.stringify({ messages });
    try {
        const counted = await (await ask("tokenize", { method: "POST", body, signal })).json();
        return { count: counted.count, context: counted.max_model_len };
    } catch (problem) {
        if (problem.code !== "context_length_exceeded") throw problem;
        return { count: Infinity, context: 0 }; // so long that the server doesn't count
    }
}

// The answer as it comes: { content, reasoning, tokens, total, end, model }, of texts what is new.
export async function* answer(messages, fields, signal) {
    const asked = JSON.stringify({
        messages,
        ...fields,
        stream: true,
        stream_options: { include_usage: true, continuous_usage_stats: true },
    });
    // The schema goes as it was written: numbers that are read would be rounded.
    const schema = fields.response_format?.json_schema.schema;
    const body = asked.replace(`"schema":${JSON.stringify(schema)}`, () => `"schema":${schema}`);
    const response = await ask("v1/chat/completions", { method: "POST", body, signal });
    for await (const data of events(response.body)) {
        if (data === "[DONE]") return;
        const event = JSON.parse(data);
        if (event.error) throw new Problem(event.error.message, event.error);
        const choice = event.choices[0];
        yield {
            content: choice?.delta.content ?? "",
            reasoning: choice?.delta.reasoning ?? "",
            tokens: event.usage?.completion_tokens ?? 0,
            total: event.usage?.total_tokens ?? 0, // with the prompt
            end: choice?.finish_reason ?? null,
            model: event.model,
        };
    }
    throw new Problem("The connection broke before the answer was whole.");
}

async function ask(path, { method = "GET", body, signal } = {}) {
    let response;
    try {
        response = await fetch(ROOT + path, { method, body, signal, headers: headers(body) });
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Problem("The server can’t be reached. Is it running?");
    }
    if (response.ok) return response;
    throw await problemOf(response);
}

function headers(body) {
    // The name of this header lets a key through that the browser knows from opening the page.
    const sent = { "x-inferno-page": "1" };
    const key = loadKey();
    if (key) sent.authorization = `Bearer ${key}`;
    if (body) sent["content-type"] = "application/json";
    return sent;
}

async function problemOf(response) {
    const body = await response.json().catch(() => ({}));
    const retryAfter = Number(response.headers.get("retry-after")) || 0;
    return new Problem(
        body.error?.message ?? `The server answered with status ${response.status}.`,
        { ...body.error, status: response.status, retryAfter, progress: body.progress },
    );
}

// The data of server-sent events, until the stream ends or breaks.
async function* events(stream) {
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
        const { value, done } = await reader.read().catch(() => ({ done: true }));
        if (done) return;
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) {
            if (block.startsWith("data: ")) yield block.slice(6);
        }
    }
}
