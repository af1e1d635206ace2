"""A receiver of OTLP over HTTP: `python -m tests.telemetry.otlp_receiver FILE` appends spans to FILE as JSON.

It prints its port and serves until its standard input ends.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

TOWER = "slipway.tower"


def described(span: Span, service: str) -> dict[str, object]:
    return {
        "service": service,
        "name": span.name,
        "kind": Span.SpanKind.Name(span.kind),
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "seconds": str((span.end_time_unix_nano - span.start_time_unix_nano) / 1e9),
        "failed": span.status.message if span.status.code == Status.STATUS_CODE_ERROR else None,
        "tower": next((each.value.string_value for each in span.attributes if each.key == TOWER), ""),
    }


def main() -> None:
    file = Path(sys.argv[1])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
            with file.open("a") as spans:
                for resource in asked.resource_spans:
                    names = {each.key: each.value.string_value for each in resource.resource.attributes}
                    for scope in resource.scope_spans:
                        for span in scope.spans:
                            spans.write(json.dumps(described(span, names["service.name"])) + "\n")
            body = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: tests look at what was received."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdout.write(f"{server.server_address[1]}\n")
        sys.stdout.flush()
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
