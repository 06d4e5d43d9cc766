#!/usr/bin/python3
"""A tool plugin in Python: grpcio and protobuf, no generated code. docs/plugins.md says in words what it does.

Without a supervisor it answers `plugin.py describe`, `plugin.py invoke TOOL JSON` and `plugin.py --help`.

The few messages that it needs are described below by field numbers; a field that is not listed is passed over, as
protobuf has it.
"""

import faulthandler
import hashlib
import hmac
import json
import os
import queue
import signal
import sys
import tempfile
import threading
import traceback
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

COOKIE = ("HERMES_SUPERVISOR_WORKER", "b0f3a6c2-9a35-4d0e-8a53-1f3f0a1c7e55")
STRING, INT64, UINT64, UINT32, BOOL = 9, 3, 4, 13, 8

# name of a message: its fields as (number, name, type), where the type is a scalar or the name of another message;
# "*" before that name, and a scalar in brackets, mean a list. Numbers and types are those of ipc/proto/hermes.
MESSAGES = {
    "Empty": [],
    "InitRequest": [(3, "host_broker_id", UINT32)],
    "InitResponse": [(1, "role", STRING), (2, "version", STRING)],
    "WorkerHealth": [(1, "state", UINT32), (2, "progress", UINT64), (3, "in_flight", UINT32)],
    "DrainResponse": [(1, "unfinished", UINT32)],
    "ToolSpec": [(1, "name", STRING), (2, "description", STRING), (3, "input_schema_json", STRING), (4, "read_only", BOOL),
                 (5, "default_timeout_ms", INT64), (6, "max_timeout_ms", INT64)],
    "Wants": [(1, "secrets", [STRING])],
    "DescribeResponse": [(1, "plugin", STRING), (2, "version", STRING), (4, "tools", "*ToolSpec"), (5, "wants", "Wants")],
    "InvokeRequest": [(1, "tool", STRING), (2, "arguments_json", STRING)],
    "ToolError": [(1, "kind", UINT32), (2, "message", STRING)],
    "Result": [(1, "content", STRING), (2, "error", "ToolError")],
    "InvokeEvent": [(1, "progress", STRING), (3, "result", "Result")],
    "ServingStatus": [(1, "status", UINT32)],
    "ConnInfo": [(1, "service_id", UINT32), (2, "network", STRING), (3, "address", STRING)],
    "SecretRequest": [(1, "name", STRING)],
    "SecretResponse": [(1, "value", STRING)],
}
READY, SERVING, BAD_ARGUMENTS, FAILED = 1, 1, 1, 2  # of the enums, which travel as numbers


def message_classes():
    """Makes a class of each of MESSAGES."""
    file = descriptor_pb2.FileDescriptorProto(name="plugin.proto", package="plugin_messages", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind in fields:
            f = message.field.add(name=field, number=number, label=1)
            if isinstance(kind, list):
                f.type, f.label = kind[0], 3
            elif isinstance(kind, int):
                f.type = kind
            else:
                f.label = 3 if kind.startswith("*") else 1
                f.type, f.type_name = 11, ".plugin_messages." + kind.lstrip("*")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    # Its name since protobuf 4.22; Debian 12 has an older one.
    make = getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(pool).GetPrototype
    return {name: make(pool.FindMessageTypeByName("plugin_messages." + name)) for name in MESSAGES}


M = message_classes()

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "the text"}},
    "required": ["text"],
    "additionalProperties": False,
}
KEY = "SIGNING_KEY"  # a secret in .env


class Call:
    """What a tool is given while it runs: progress for the person who waits, and the plugin's secrets."""

    def __init__(self, show, secret):
        self.progress, self.secret = show, secret


def count_words(call, text):
    """Count the words of a text."""
    return str(len(text.split()))


def sign_text(call, text):
    """Sign a text with a key that nobody sees."""
    call.progress("fetching the key")
    return hmac.new(call.secret(KEY).encode(), text.encode(), hashlib.sha256).hexdigest()


TOOLS = {f.__name__: f for f in (count_words, sign_text)}


class Plugin:
    """The services of a plugin. Calls run side by side, in the threads of the server."""

    def __init__(self):
        self.lock = threading.Lock()
        self.running = self.done = 0

        self.addresses = queue.Queue()  # of the supervisor's services, by their numbers
        self.config = None

    def init(self, request, context):
        """Connects to the supervisor's services, of which a plugin may use Config."""
        while request.host_broker_id:
            info = self.addresses.get(timeout=10)
            if info.service_id == request.host_broker_id:
                self.config = grpc.insecure_channel(f"{info.network}:{info.address}")
                break
        return M["InitResponse"](role="plugin", version="0.1.0")

    def secret(self, name):
        ask = self.config.unary_unary("/hermes.host.v1.Config/Secret", lambda m: m.SerializeToString(), M["SecretResponse"].FromString)
        try:
            return ask(M["SecretRequest"](name=name), timeout=10).value
        except grpc.RpcError as e:
            raise RuntimeError(f"secret {name}: {e.details()}") from None

    def health(self, request, context):
        with self.lock:
            return M["WorkerHealth"](state=READY, progress=self.done, in_flight=self.running)

    def drain(self, request, context):
        with self.lock:
            return M["DrainResponse"](unfinished=self.running)

    def describe(self, request, context):
        return described()

    def invoke(self, request, context):
        if request.tool not in TOOLS:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no tool {request.tool!r}")
        lines = queue.Queue()
        with self.lock:
            self.running += 1
        try:
            with futures.ThreadPoolExecutor(1) as thread:
                done = thread.submit(result_of, request.tool, request.arguments_json, Call(lines.put, self.secret))
                done.add_done_callback(lambda _: lines.put(None))
                for line in iter(lines.get, None):
                    yield M["InvokeEvent"](progress=line)
        finally:
            with self.lock:
                self.running -= 1
                self.done += 1
        yield M["InvokeEvent"](result=done.result())

    def read_addresses(self, requests, context):
        """Over this stream, which stays open, the supervisor says where its own services listen."""
        for info in requests:
            self.addresses.put(info)
        yield from ()


def described():
    """What the plugin says of itself."""
    tools = [M["ToolSpec"](name=name, description=tool.__doc__, input_schema_json=json.dumps(SCHEMA), read_only=True,
                           default_timeout_ms=1000, max_timeout_ms=10000) for name, tool in TOOLS.items()]
    return M["DescribeResponse"](plugin="python", version="0.1.0", tools=tools, wants=M["Wants"](secrets=[KEY]))


def result_of(tool, arguments, call):
    """Makes a call. What goes wrong is in the result, in words for the model."""
    try:
        text = text_of(arguments)
    except ValueError as e:
        return M["Result"](error=M["ToolError"](kind=BAD_ARGUMENTS, message=str(e)))
    try:
        return M["Result"](content=TOOLS[tool](call, text))
    except BaseException as e:  # sys.exit in a tool, too: it would end the thread, and the call would wait for ever
        traceback.print_exc()
        return M["Result"](error=M["ToolError"](kind=FAILED, message=str(e) or type(e).__name__))


def text_of(arguments):
    """Takes the arguments apart; a ValueError says what is wrong with them, which is what the model reads."""
    a = json.loads(arguments)
    if not isinstance(a, dict) or set(a) != {"text"} or not isinstance(a["text"], str):
        raise ValueError('the arguments must be an object with "text", a string, and nothing else')
    return a["text"]


KINDS = {"Invoke": grpc.unary_stream_rpc_method_handler, "StartStream": grpc.stream_stream_rpc_method_handler}


def service(name, **methods):
    """Makes the handlers of a service: method=(function, class of the request), all with one answer but those of KINDS."""
    def handler(method, function, request):
        return KINDS.get(method, grpc.unary_unary_rpc_method_handler)(function, request_deserializer=M[request].FromString, response_serializer=lambda m: m.SerializeToString())
    return grpc.method_handlers_generic_handler(name, {m: handler(m, *of) for m, of in methods.items()})


def leave(*_):
    os._exit(0)  # at once, whatever the threads do


def wait_for_end_of_supervisor():
    os.read(3, 1)
    leave()


def by_hand(words):
    """Answers a person, without a supervisor. The exit code is 0, 1 for a call that failed, 2 for one that was wrong."""
    if words == ["describe"]:
        tools = [{"name": t.name, "description": t.description, "schema": json.loads(t.input_schema_json)} for t in described().tools]
        print(json.dumps({"plugin": "python", "version": "0.1.0", "tools": tools, "wants": {"secrets": [KEY]}}, indent=2))
        return 0
    if len(words) == 3 and words[0] == "invoke" and words[1] in TOOLS:
        # By hand secrets are in the environment. Under a supervisor they are in none.
        result = result_of(words[1], words[2], Call(lambda line: print(line, file=sys.stderr), lambda name: os.environ[name]))
        if result.error.kind:
            print(result.error.message, file=sys.stderr)
            return 2 if result.error.kind == BAD_ARGUMENTS else 1
        print(result.content)
        return 0
    print("this is a tool plugin of hermes-supervisor:\n  hermes-supervisor plugins add plugin.py\nwithout one:\n"
          "  plugin.py describe\n  plugin.py invoke TOOL JSON   (TOOL: " + ", ".join(TOOLS) + ")")
    return 0 if words == ["--help"] else 2


def main():
    if len(sys.argv) > 1 or os.environ.get(COOKIE[0]) != COOKIE[1]:
        sys.exit(by_hand(sys.argv[1:]))
    signal.signal(signal.SIGTERM, leave)
    # What is printed is in the log at once. Python keeps it until there are 8 KiB, and an end by os._exit or a signal loses it.
    sys.stdout.reconfigure(line_buffering=True)
    faulthandler.enable(all_threads=False)  # a fault in a library of C says where
    if os.environ.get("HERMES_LIVENESS_FD") == "3":
        threading.Thread(target=wait_for_end_of_supervisor, daemon=True).start()
    plugin = Plugin()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    empty = M["Empty"]
    server.add_generic_rpc_handlers((
        service("grpc.health.v1.Health", Check=(lambda r, c: M["ServingStatus"](status=SERVING), "Empty")),
        service("plugin.GRPCController", Shutdown=(lambda r, c: threading.Timer(0.1, leave).start() or empty(), "Empty")),
        service("plugin.GRPCBroker", StartStream=(plugin.read_addresses, "ConnInfo")),
        service("hermes.worker.v1.Worker", Init=(plugin.init, "InitRequest"), Health=(plugin.health, "Empty"),
                Drain=(plugin.drain, "Empty"), Stats=(lambda r, c: empty(), "Empty")),
        service("hermes.tool.v1.Tool", Describe=(plugin.describe, "Empty"), Invoke=(plugin.invoke, "InvokeRequest")),
    ))
    # The supervisor wants it in that folder itself, not in one below.
    address = os.path.join(os.environ.get("PLUGIN_UNIX_SOCKET_DIR") or tempfile.mkdtemp(), "python.sock")
    server.add_insecure_port("unix:" + address)
    server.start()
    print(f"1|1|unix|{address}|grpc|", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
