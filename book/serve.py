"""Show the built book on a local address until Ctrl-C."""

import argparse
import functools
import http.server
import sys

from build_book import HTML


def main(arguments: list[str] | None = None) -> int:
    """Serve the folder of pages; 1 when the port is taken or there is no book."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    port = parser.parse_args(arguments).port
    if not (HTML / "index.html").is_file():
        print("There is no book yet: run `make book`.", file=sys.stderr)
        return 1
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(HTML))
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except (OSError, OverflowError) as error:
        print(f"Port {port} cannot be used ({error}): try make serve PORT=8001", file=sys.stderr)
        return 1
    print(f"Serving on http://127.0.0.1:{server.server_port} (stop with Ctrl-C)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
