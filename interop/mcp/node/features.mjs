// What the MCP server offers: what the conformance suite's scenarios ask for, by the names that they use.

import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import {
  CLIENT_CAPABILITIES_META_KEY, McpServer, ProtocolError, ProtocolErrorCode, ResourceTemplate, acceptedContent,
  createRequestStateCodec, fromJsonSchema, inputRequired,
} from '@modelcontextprotocol/server';

// One key for the process: each request of 2026-07-28 has a server of its own.
const state = createRequestStateCodec({ key: crypto.getRandomValues(new Uint8Array(32)) });

/**
 * A server. `record` is called with each tool call, prompt and read that runs; `notify` tells open subscriptions about
 * changes; `closeStream` closes the stream of a request in a session.
 */
export function createServer({ record, notify, closeStream }) {
  const capabilities = {
    tools: { listChanged: true },
    resources: { subscribe: true, listChanged: true },
    prompts: { listChanged: true },
    logging: {},
    completions: {},
  };
  const server = new McpServer(
    { name: 'everything', version: '1.0.0' },
    { capabilities, requestState: { verify: state.verify } },
  );
  const tools = {
    ...contents(), ...streams(closeStream), ...oldInput(), ...newInput(), ...changes(notify), ...headers(),
  };
  for (const [name, { schema, run }] of Object.entries(tools)) {
    const inputSchema = fromJsonSchema(schema ?? { type: 'object', properties: {} });
    server.registerTool(name, { description: `Tests ${name}.`, inputSchema }, (args, context) => {
      record({ tool: name, arguments: args });
      return run(args, context);
    });
  }
  addResources(server, record);
  addPrompts(server, record);
  const nothing = () => ({});
  for (const method of ['resources/subscribe', 'resources/unsubscribe', 'logging/setLevel']) {
    server.server.setRequestHandler(method, nothing);
  }
  server.server.setRequestHandler('completion/complete', () => ({
    completion: { values: [], total: 0, hasMore: false },
  }));
  return server;
}

const text = (value) => ({ content: [{ type: 'text', text: value }] });
/** One red pixel. */
const PNG =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const image = { type: 'image', data: PNG, mimeType: 'image/png' };
const resource = (uri, value, mimeType = 'text/plain') =>
  ({ type: 'resource', resource: { uri, mimeType, text: value } });

/** Tools that answer with each kind of content. */
function contents() {
  const wav = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=';
  const json = JSON.stringify({ test: 'data', value: 123 });
  const data = resource('test://mixed-content-resource', json, 'application/json');
  return {
    test_simple_text: { run: () => text('This is a simple text response for testing.') },
    test_image_content: { run: () => ({ content: [image] }) },
    test_audio_content: { run: () => ({ content: [{ type: 'audio', data: wav, mimeType: 'audio/wav' }] }) },
    test_embedded_resource: {
      run: () => ({ content: [resource('test://embedded-resource', 'This is an embedded resource content.')] }),
    },
    test_multiple_content_types: {
      run: () => ({ content: [...text('Multiple content types test:').content, image, data] }),
    },
    test_error_handling: {
      run: () => {
        throw new Error('This tool intentionally returns an error for testing');
      },
    },
    json_schema_2020_12_tool: { schema: SCHEMA_2020_12, run: (args) => text(JSON.stringify(args)) },
  };
}

/** Every keyword of JSON Schema 2020-12 that has to reach the client. */
const SCHEMA_2020_12 = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: {
    address: {
      $anchor: 'addressDef',
      type: 'object',
      properties: { street: { type: 'string' }, city: { type: 'string' } },
    },
  },
  properties: {
    name: { type: 'string' },
    address: { $ref: '#/$defs/address' },
    contactMethod: { type: 'string', enum: ['phone', 'email'] },
    phone: { type: 'string' },
    email: { type: 'string' },
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
};

/** Tools that send notifications before their result. */
function streams(closeStream) {
  const log = (data) => ({ method: 'notifications/message', params: { level: 'info', data } });
  return {
    test_tool_with_logging: {
      run: async (_, { mcpReq }) => {
        for (const step of ['started', 'processing', 'completed']) {
          await mcpReq.notify(log(`Tool execution ${step}`));
          await pause(50);
        }
        return text('Tool with logging executed successfully');
      },
    },
    test_tool_with_progress: {
      run: async (_, { mcpReq }) => {
        const token = mcpReq._meta?.progressToken;
        for (const progress of token === undefined ? [] : [0, 50, 100]) {
          const params = { progressToken: token, progress, total: 100, message: `Completed step ${progress} of 100` };
          await mcpReq.notify({ method: 'notifications/progress', params });
          await pause(50);
        }
        return text(String(token));
      },
    },
    test_reconnection: {
      run: async (_, context) => {
        closeStream(context);
        await pause(100);
        return text('Reconnection test completed');
      },
    },
    // Of 2026-07-28: without requests of its own, and without log messages that the client did not ask for.
    test_streaming_elicitation: { run: () => text('no requests on this stream') },
    test_logging_tool: {
      run: async (_, { mcpReq }) => {
        await mcpReq.log('info', 'test_logging_tool runs');
        return text('logged if the client asked for it');
      },
    },
  };
}

/** Tools that ask the client by requests of the server, as before 2026-07-28. */
function oldInput() {
  const elicit = (message, properties, required = []) => async (_, { mcpReq }) => {
    const requestedSchema = { type: 'object', properties, required };
    const answer = await mcpReq.send({ method: 'elicitation/create', params: { message, requestedSchema } });
    return text(`Elicitation completed: action=${answer.action}, content=${JSON.stringify(answer.content ?? {})}`);
  };
  const oneText = (name) => ({ type: 'object', properties: { [name]: { type: 'string' } }, required: [name] });
  return {
    test_sampling: {
      schema: oneText('prompt'),
      run: async ({ prompt }, { mcpReq }) => {
        const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
        const answer = await mcpReq.send({ method: 'sampling/createMessage', params: { messages, maxTokens: 100 } });
        return text(`LLM response: ${answer.content.text}`);
      },
    },
    test_elicitation: {
      schema: oneText('message'),
      run: ({ message }, context) =>
        elicit(message, { response: { type: 'string', description: 'The answer' } }, ['response'])(undefined, context),
    },
    test_elicitation_sep1034_defaults: {
      run: elicit('Please check these values', {
        name: { type: 'string', default: 'John Doe' },
        age: { type: 'integer', default: 30 },
        score: { type: 'number', default: 95.5 },
        status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
        verified: { type: 'boolean', default: true },
      }),
    },
    test_elicitation_sep1330_enums: { run: elicit('Please choose', ENUMS) },
  };
}

const OPTIONS = ['option1', 'option2', 'option3'];
const TITLED = OPTIONS.map((option) => ({ const: option, title: `Title of ${option}` }));

/** Each way to offer a choice. */
const ENUMS = {
  untitledSingle: { type: 'string', enum: OPTIONS },
  titledSingle: { type: 'string', oneOf: TITLED },
  legacyEnum: { type: 'string', enum: OPTIONS, enumNames: OPTIONS.map((option) => `Name of ${option}`) },
  untitledMulti: { type: 'array', minItems: 1, maxItems: 3, items: { type: 'string', enum: OPTIONS } },
  titledMulti: { type: 'array', minItems: 1, maxItems: 3, items: { anyOf: TITLED } },
};

const ask = (message, name, type = 'string') => {
  const requestedSchema = { type: 'object', properties: { [name]: { type } }, required: [name] };
  return inputRequired.elicit({ message, requestedSchema });
};
const askName = () => ask('What is your name?', 'name');
const askModel = (question, maxTokens) =>
  inputRequired.createMessage({ messages: [{ role: 'user', content: { type: 'text', text: question } }], maxTokens });

/** What the user gave, if the user accepted. */
const given = ({ mcpReq }, request, name) => acceptedContent(mcpReq.inputResponses, request)?.[name];

/** Tools that ask the client by their results, as from 2026-07-28 on. */
function newInput() {
  const mint = (value) => state.mint({ ...value, nonce: randomUUID() });
  const confirm = async () =>
    inputRequired({ inputRequests: { confirm: ask('Please confirm', 'ok', 'boolean') }, requestState: await mint({}) });
  const confirmed = ({ mcpReq }) => acceptedContent(mcpReq.inputResponses, 'confirm') !== undefined;
  const prefix = 'test_input_required_result_';
  return {
    test_missing_capability: {
      run: (_, { mcpReq }) => (mcpReq.inputResponses?.answer
        ? text('answered')
        : inputRequired({ inputRequests: { answer: askModel('Answer with one word: pong', 16) } })),
    },
    [`${prefix}elicitation`]: {
      run: (_, context) => {
        const name = given(context, 'user_name', 'name');
        if (typeof name === 'string') return text(`Hello, ${name}!`);
        return inputRequired({ inputRequests: { user_name: askName() } });
      },
    },
    [`${prefix}sampling`]: {
      run: (_, { mcpReq }) => {
        const answer = mcpReq.inputResponses?.capital_question;
        if (answer) return text(`Sampling response: ${answer.content?.text}`);
        return inputRequired({ inputRequests: { capital_question: askModel('What is the capital of France?', 100) } });
      },
    },
    [`${prefix}list_roots`]: {
      run: (_, { mcpReq }) => {
        const roots = mcpReq.inputResponses?.client_roots?.roots;
        if (Array.isArray(roots)) return text(`The client has roots: ${roots.map(({ uri }) => uri).join(', ')}`);
        return inputRequired({ inputRequests: { client_roots: inputRequired.listRoots() } });
      },
    },
    [`${prefix}request_state`]: {
      run: (_, context) => {
        if (!confirmed(context)) return confirm();
        if (!context.mcpReq.requestState()) throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'no requestState');
        return text('state-ok: requestState verified');
      },
    },
    [`${prefix}tampered_state`]: {
      run: (_, context) =>
        (confirmed(context) && context.mcpReq.requestState() ? text('state-ok: requestState verified') : confirm()),
    },
    [`${prefix}multiple_inputs`]: {
      run: async (_, context) => {
        const name = given(context, 'user_name', 'name');
        const { greeting, client_roots: found } = context.mcpReq.inputResponses ?? {};
        if (name && greeting?.content?.text && found?.roots) return text(`${greeting.content.text} ${name}`);
        return inputRequired({
          inputRequests: {
            user_name: askName(),
            greeting: askModel('Generate a greeting', 50),
            client_roots: inputRequired.listRoots(),
          },
          requestState: await mint({}),
        });
      },
    },
    [`${prefix}multi_round`]: {
      run: async (_, context) => {
        const { round = 0, name } = context.mcpReq.requestState() ?? {};
        if (round === 0) {
          const step1 = ask('Step 1: What is your name?', 'name');
          return inputRequired({ inputRequests: { step1 }, requestState: await mint({ round: 1 }) });
        }
        if (round === 1) {
          const step2 = ask('Step 2: What is your favourite colour?', 'color');
          const next = await mint({ round: 2, name: given(context, 'step1', 'name') });
          return inputRequired({ inputRequests: { step2 }, requestState: next });
        }
        return text(`${name} likes ${given(context, 'step2', 'color')}`);
      },
    },
    [`${prefix}capabilities`]: {
      run: (_, { mcpReq }) => {
        const can = mcpReq.envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? {};
        if (mcpReq.inputResponses) return text('answered');
        const inputRequests = {
          ...(can.elicitation && { user_name: askName() }),
          ...(can.sampling && { greeting: askModel('Generate a greeting', 50) }),
          ...(can.roots && { client_roots: inputRequired.listRoots() }),
        };
        return Object.keys(inputRequests).length ? inputRequired({ inputRequests }) : text('nothing to ask');
      },
    },
  };
}

/** Tools that tell subscriptions about changes. */
function changes(notify) {
  return {
    test_trigger_tool_change: { run: () => notify.toolsChanged() ?? text('told') },
    test_trigger_prompt_change: { run: () => notify.promptsChanged() ?? text('told') },
  };
}

/** A tool with an argument that clients repeat in a header. */
function headers() {
  const region = { type: 'string', 'x-mcp-header': 'Region' };
  return {
    test_x_mcp_header: {
      schema: { type: 'object', properties: { region, level: { type: 'integer' } } },
      run: (args) => text(`region=${args.region}`),
    },
  };
}

function addResources(server, record) {
  const add = (name, at, mimeType, content) =>
    server.registerResource(name, at, { description: `Tests ${name}.`, mimeType }, (uri, variables) => {
      record({ resource: uri.href });
      return { contents: [{ uri: uri.href, mimeType, ...content(variables) }] };
    });
  const words = (value) => () => ({ text: value });
  add('static-text', 'test://static-text', 'text/plain', words('This is the content of the static text resource.'));
  add('static-binary', 'test://static-binary', 'image/png', () => ({ blob: PNG }));
  add('watched-resource', 'test://watched-resource', 'text/plain', words('Watched resource content'));
  const template = new ResourceTemplate('test://template/{id}/data', { list: undefined });
  add('template', template, 'application/json', ({ id }) => ({
    text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }),
  }));
}

function addPrompts(server, record) {
  const add = (name, parameters, messages) => {
    const properties = Object.fromEntries(parameters.map((parameter) => [parameter, { type: 'string' }]));
    const argsSchema = parameters.length && fromJsonSchema({ type: 'object', properties, required: parameters });
    const run = (args, context) => {
      record({ prompt: name, arguments: args });
      const found = messages(args, context);
      return Array.isArray(found) ? { messages: found.map((content) => ({ role: 'user', content })) } : found;
    };
    const config = { description: `Tests ${name}.`, ...(argsSchema && { argsSchema }) };
    server.registerPrompt(name, config, argsSchema ? run : (context) => run({}, context));
  };
  const words = (value) => text(value).content[0];
  add('test_simple_prompt', [], () => [words('This is a simple prompt for testing.')]);
  add('test_prompt_with_arguments', ['arg1', 'arg2'], ({ arg1, arg2 }) =>
    [words(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)]);
  add('test_prompt_with_embedded_resource', ['resourceUri'], ({ resourceUri }) =>
    [resource(resourceUri, 'Embedded resource content for testing.'), words('Please process this resource.')]);
  add('test_prompt_with_image', [], () => [image, words('Please analyze this image.')]);
  add('test_input_required_result_prompt', [], (_, context) => {
    const found = given(context, 'user_context', 'context');
    if (typeof found === 'string') return [words(`Use the following context: ${found}`)];
    return inputRequired({ inputRequests: { user_context: ask('Which context?', 'context') } });
  });
}
