"""A real HTTP server on this machine, that can be told to misbehave."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FileServer:
    """Serves `files`; keeps the `Range` headers it was asked with.

    `cut` is the number of bytes after which a connection breaks, None for never. `resumes` says whether a Range
    is honoured; `shift` moves the answer's start away from what was asked; `tells_length` whether the length
    is told.
    """

    def __init__(self):
        self.files = {}
        self.cut = None
        self.resumes = True
        self.shift = 0
        self.tells_length = True
        self.ranges = []
        self.address = ""

    def answer(self, handler):
        """Answer one request."""
        self.ranges.append(handler.headers["Range"])
        data = self.files.get(handler.path)
        if data is None:
            handler.send_error(404)
            return
        asked = handler.headers["Range"]
        start = 0
        if asked is not None and self.resumes:
            start = int(asked.removeprefix("bytes=").removesuffix("-")) - self.shift
            if start >= len(data):
                handler.send_response(416)
                handler.send_header("Content-Range", f"bytes */{len(data)}")
                handler.send_header("Content-Length", "0")
                handler.end_headers()
                return
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            handler.send_response(200)
        if self.tells_length:
            handler.send_header("Content-Length", str(len(data) - start))
        handler.end_headers()
        handler.wfile.write(data[start:] if self.cut is None else data[start : start + self.cut])


@contextmanager
def serving():
    """Give a server that runs until the block ends."""
    files = FileServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            files.answer(self)

        def log_message(self, *_):
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        files.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield files
        finally:
            server.shutdown()
            thread.join()
