// What OpenAI's client for Node makes of a server: run with its base URL, prints one JSON object.
"use strict";
const OpenAI = require("openai");

const baseURL = process.argv[2];
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "What is 3 plus 4?" }];
const greedy = { model: "demo", messages, temperature: 0 };
const story = { model: "demo", messages: [{ role: "user", content: "Tell me a story." }] };

async function streamed() {
  const stream_options = { include_usage: true };
  const stream = await client.chat.completions.create({ ...greedy, stream: true, stream_options });
  let text = "";
  let usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  return { text, usage };
}

async function texts(seed) {
  const fields = { ...story, n: 3, seed, temperature: 1, max_completion_tokens: 20 };
  const answer = await client.chat.completions.create(fields);
  return answer.choices.map((choice) => choice.message.content);
}

async function error(fields, from = client) {
  try {
    await from.chat.completions.create({ ...greedy, ...fields });
    return null;
  } catch (problem) {
    const { status, code, type } = problem;
    return { name: problem.constructor.name, status, code, type };
  }
}

async function main() {
  const chat = await client.chat.completions.create(greedy);
  const content = chat.choices[0].message.content;
  const stop = content.slice(3, 6);
  const stopped = await client.chat.completions.create({ ...greedy, stop });
  const scored = { ...greedy, logprobs: true, top_logprobs: 2, max_tokens: 3 };
  const logprobs = (await client.chat.completions.create(scored)).choices[0].logprobs.content;
  const plain = { model: "demo", prompt: ["The sun", "A dog"], max_tokens: 4, temperature: 0 };
  const completion = await client.completions.create(plain);
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  const result = {
    chat,
    streamed: await streamed(),
    seeds: [await texts(1), await texts(1), await texts(2)],
    stop,
    stopped: stopped.choices[0],
    logprobs,
    completions: completion.choices.map((choice) => choice.text),
    models,
    errors: {
      value: await error({ n: 1e9 }),
      field: await error({ wobble: 1 }),
      model: await error({ model: "gpt-4" }),
    },
  };
  console.log(JSON.stringify(result));
}

main();
