// Shapes and tools by clients for Node: run with a server's base URL, prints one JSON object.
"use strict";
const { OpenAI } = require("openai");
const { zodFunction, zodResponseFormat } = require("openai/helpers/zod");
const { z } = require("zod");
const ai = require("ai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { createOpenAI } = require("@ai-sdk/openai");

globalThis.AI_SDK_LOG_WARNINGS = false;
const baseURL = process.argv[2];
const model = "demo";
const City = z.object({ name: z.enum(["Rome", "Oslo"]), size: z.number().int().min(1).max(9) });
const Place = z.object({ place: z.string(), days: z.number().int() });
const said = {};

const chats = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 }).chat.completions;
const ask = (content) => [{ role: "user", content }];
const rain = ({ place }) => `It pours in ${place}.`;
const format = zodResponseFormat(City, "city");

async function openai() {
  const parsed = await chats.parse({ model, messages: ask("hi"), response_format: format });
  const stream = chats.stream({ model, messages: ask("hi"), response_format: format });
  const final = await stream.finalChatCompletion();
  const tools = [zodFunction({ name: "get_weather", parameters: Place, function: rain })];
  const called = await chats.parse({ model, messages: ask("rain?"), tools });
  const [whole, streamed] = [
    chats.runTools({ model, messages: ask("rain?"), tools }),
    chats.runTools({ model, messages: ask("rain?"), tools, stream: true }),
  ];
  return {
    parsed: parsed.choices[0].message.parsed,
    streamed: final.choices[0].message.parsed,
    call: called.choices[0].message.tool_calls[0].function.parsed_arguments,
    run: [await whole.finalContent(), await streamed.finalContent()],
    results: whole.messages.filter((each) => each.role === "tool").map((each) => each.content),
  };
}

async function sdk(provider) {
  const options = { model: provider, maxRetries: 0 };
  const weather = ai.tool({ description: "Of a place.", inputSchema: Place, execute: rain });
  const steps = { tools: { get_weather: weather }, stopWhen: ai.stepCountIs(3) };
  const idle = { a: ai.tool({ inputSchema: z.object({}) }), b: ai.tool({ inputSchema: z.object({}) }) };
  const object = await ai.generateObject({ ...options, schema: City, prompt: "hi" });
  const choice = await ai.generateObject({
    ...{ ...options, output: "enum", enum: ["x", "y"], prompt: "hi" },
  });
  const stream = ai.streamObject({ ...options, schema: City, prompt: "hi" });
  let partial = 0;
  for await (const _ of stream.partialObjectStream) partial += 1;
  const text = await ai.generateText({ ...options, ...steps, prompt: "rain?" });
  const streamed = ai.streamText({ ...options, ...steps, prompt: "rain?" });
  const forced = (toolChoice) =>
    ai.generateText({ ...options, prompt: "hi", tools: idle, toolChoice });
  const both = await ai.generateText({
    ...{ ...options, ...steps, prompt: "document", output: ai.Output.object({ schema: City }) },
  });
  return {
    object: object.object,
    choice: choice.object,
    streamed: await stream.object,
    partial,
    text: [text.text, await streamed.text],
    calls: [text.steps, await streamed.steps].map((each) =>
      each.flatMap((step) => step.toolCalls.map(({ toolName, input }) => [toolName, input])),
    ),
    required: (await forced("required")).toolCalls.map((call) => call.toolName),
    named: (await forced({ type: "tool", toolName: "b" })).toolCalls.map((call) => call.toolName),
    document: both.output,
  };
}

async function main() {
  const settings = { name: "inferno", baseURL, supportsStructuredOutputs: true };
  said.openai = await openai();
  said.compatible = await sdk(createOpenAICompatible(settings)(model));
  said.sdk = await sdk(createOpenAI({ baseURL, apiKey: "none" }).chat(model));
  console.log(JSON.stringify(said));
}

main().catch((problem) => {
  console.error(problem);
  process.exit(1);
});
