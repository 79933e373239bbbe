"""A small HTTP server, which a service task runs: it answers requests with its process.

It hangs after a request for /hang, and takes a while for /slow. Its arguments are the number of seconds until it
listens, and its address.
"""

import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == '/hang':
            time.sleep(1000)
        if self.path == '/slow':
            time.sleep(0.02)
        text = str(os.getpid()).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)


print('begins', flush=True)
time.sleep(float(sys.argv[1]))
address = sys.argv[2] if len(sys.argv) > 2 else '127.0.0.1'
with HTTPServer((address, int(os.environ['RP_SERVICE_PORT'])), Handler) as server:
    print(f'listens at http://{address}:{server.server_port} as', os.getpid(), flush=True)
    with open('ready', 'w') as file:
        print(os.getpid(), file=file)
    server.serve_forever()
