# SPDX-License-Identifier: Apache-2.0
"""The server of `fovea view`: whom it answers, its limits, and its end."""

import signal
import socket
import subprocess
import threading
import time
import unittest

from support import SANITIZED, TIMEOUT_S, limits_memory
from viewer import ViewTest

# Seconds within which a server must end after it is told to stop.
END_S = 10 if SANITIZED else 3


class SecurityTest(ViewTest):
    """Criterion: only pages of this server, with the token."""

    def test_hosts(self):
        server = self.start()
        for host in ("localhost", "127.0.0.1", "[::1]", "localhost:1", f"127.0.0.1:{server.port}"):
            self.assertEqual(server.ask("/", token=False, Host=host)[0], 200, host)
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "localhost:", "localhost:x", "",
                     "127.0.0.1:123456", "0.0.0.0", "[::1"):
            self.refused(server.ask("/", Host=host), 421, "host")
        self.assertIn(b"HTTP/1.1 421", server.raw(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"))
        self.assertIn(b"HTTP/1.1 421", server.raw(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n"))

    def test_origins(self):
        server = self.start()
        host = f"127.0.0.1:{server.port}"
        self.assertEqual(server.ask("/api/v1/inputs", Host=host, Origin=f"http://{host}")[0], 200)
        for origin in ("http://evil.example", f"https://{host}", "null", f"http://127.0.0.1:{server.port + 1}",
                       f"http://localhost:{server.port}"):
            for path in ("/", "/api/v1/inputs"):
                self.refused(server.ask(path, Host=host, Origin=origin), 403, "origin")
        for site, status in (("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)):
            self.assertEqual(server.ask("/api/v1/inputs", Sec_Fetch_Site=site)[0], status, site)
            self.assertEqual(server.ask("/", Sec_Fetch_Site=site)[0], 200, site)  # opened from a link anywhere

    def test_tokens(self):
        server = self.start()
        for token in (False, "", "x", server.token[:-1], server.token + "0", server.token[:-1] + "g", "0" * 32):
            self.refused(server.ask("/api/v1/inputs", token=token), 401, "token")
        self.refused(server.ask(f"/api/v1/inputs?token={server.token}", token=False), 401, "token")
        self.assertNotEqual(server.token, self.start().token)

    def test_order_of_checks(self):
        server = self.start()
        foreign = {"Host": "evil.example", "Origin": "http://evil.example", "token": False}
        self.refused(server.ask("/nothing", **foreign), 421, "host")
        del foreign["Host"]
        self.refused(server.ask("/nothing", **foreign), 403, "origin")
        del foreign["Origin"]
        self.refused(server.ask("/nothing", **foreign), 404, "not_found")
        self.refused(server.ask("/api/v1/inputs?x=1", **foreign), 401, "token")
        self.refused(server.ask("/api/v1/inputs/none", **foreign), 401, "token")
        self.refused(server.ask("/api/v1/inputs?x=1"), 400, "malformed", "x")

    def test_paths_name_no_file(self):
        server = self.start()
        for path in ("/../etc/passwd", "/%2e%2e/etc/passwd", "/%2e%2e", "/assets/../main.cc", "/assets/%2e%2e%2fx",
                     "//etc/passwd", "/etc/passwd", "/assets/", "/scene/%00", "/scene/a%2fb", "/scene/a%5cb"):
            self.refused(server.ask(path, token=False), 404, "not_found")
        for path in ("/scene/%", "/scene/%zz", "/scene/%ff"):
            self.refused(server.ask(path), 400, "malformed")

    def test_methods(self):
        server = self.start()
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "FOO", "CONNECT"):
            answer = server.ask("/healthz", method=method)
            self.refused(answer, 405, "method")
            self.assertEqual(answer[1]["Allow"], "GET")
        status, fields, body = server.ask("/healthz", method="HEAD")
        self.assertEqual((status, body), (405, b""))
        self.assertEqual(server.ask("/api/v1/inputs/a/0.1/pass")[1]["Allow"], "POST, DELETE")

    @limits_memory
    def test_criterion_24(self):
        server = self.start(self.tensors())
        _, path = self.input_of(server)
        server.get(f"{path}/0.1/cell?query=3&key=2")
        before = server.resident()
        slow = threading.Thread(target=self.send_slowly, args=(server,))
        slow.start()
        statuses = [server.ask("/", Host="evil.example")[0], server.ask("/", Origin="http://evil.example")[0],
                    server.ask("/api/v1/inputs", token=False)[0], server.ask("/api/v1/inputs", token="0" * 32)[0],
                    server.ask("/../etc/passwd")[0], server.ask("/%2e%2e")[0], server.ask("/", X="a" * 9000)[0]]
        self.assertEqual(statuses, [421, 403, 401, 401, 404, 404, 431])
        slow.join()
        self.assertGreater(self.seconds, 8)
        self.assertLess(self.seconds, 13)
        self.assertLess(server.resident() - before, 1 << 20)
        self.assertEqual(server.ask("/")[0], 200)

    def send_slowly(self, server):
        """Sends a byte a second; sets the seconds until the connection is closed."""
        start = time.monotonic()
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.settimeout(1)
            for byte in b"GET / HTTP/1.1\r\nHost: localhost\r\n":
                client.sendall(bytes([byte]))
                try:
                    if client.recv(1) == b"":
                        break
                except socket.timeout:
                    continue
                except ConnectionResetError:
                    break
        self.seconds = time.monotonic() - start


class LimitsTest(ViewTest):
    def test_sizes(self):
        server = self.start(self.tensors())
        _, path = self.input_of(server)
        self.assertEqual(server.ask("/", X="a" * 7000)[0], 200)
        self.refused(server.ask("/", X="a" * 9000), 431, "too_large")
        self.refused(server.ask("/" + "a" * 5000), 413, "too_large")
        self.refused(server.ask(f"{path}/0.0/pass", method="POST", body=b" " * 70_000), 413, "too_large")
        # Without a length, which is found out while reading.
        chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
        self.assertIn(b"HTTP/1.1 413", server.raw(
            b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 20))
        self.assertEqual(server.ask("/")[0], 200)

    def test_malformed_requests(self):
        server = self.start()
        for data in (b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01",
                     b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
                     b"GET * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                     b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S) as client:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                answer = b""
                try:
                    while part := client.recv(4096):
                        answer += part
                except ConnectionResetError:
                    pass
            self.assertTrue(answer == b"" or answer.startswith(b"HTTP/1.1 400"), (data, answer[:80]))
        self.assertEqual(server.ask("/")[0], 200)

    def test_several_requests_of_one_connection(self):
        server = self.start()
        one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        last = one.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        self.assertEqual(server.raw(one * 5 + last).count(b"HTTP/1.1 200 OK"), 6)

    def test_connections(self):
        server = self.start()
        clients = [socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S) for _ in range(64)]
        try:
            time.sleep(0.3)
            with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S) as late:
                answer = late.recv(4096)
            self.assertTrue(answer.startswith(b"HTTP/1.1 429") and b"Retry-After: 1" in answer, answer)
        finally:
            for client in clients:
                client.close()
        time.sleep(0.3)
        self.assertEqual(server.ask("/")[0], 200)
        self.assertEqual(server.get("/api/v1/counters")["connections"], 1)


class LifeTest(ViewTest):
    def test_signals_end_it_normally(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            server = self.start(self.tensors(queries=4096, keys=4096))
            _, path = self.input_of(server)
            server.get(f"{path}/0.0")  # starts a pass
            start = time.monotonic()
            self.assertEqual(server.end(number), (0, b"", b""))
            self.assertLess(time.monotonic() - start, END_S)

    def test_it_ends_with_standard_input(self):
        server = self.start("--until-closed", stdin=subprocess.PIPE)
        server.process.stdin.write(b"ignored")
        server.process.stdin.flush()
        self.assertEqual(server.ask("/")[0], 200)
        server.process.stdin.close()
        server.process.stdin = None
        self.assertEqual(server.process.wait(END_S), 0)

    def test_port(self):
        server = self.start()
        message = self.fail_with(2, "view", "--no-open", "--port", str(server.port))
        self.assertRegex(message, rf"^fovea: --port: expected a free port, got {server.port}: ")
        self.assertEqual(server.end()[0], 0)
        again = self.start("--port", str(server.port))
        self.assertEqual(again.port, server.port)

    def test_only_loopback(self):
        server = self.start()
        address = f"{server.port:04X}"
        for name, own in (("tcp", {"0100007F"}), ("tcp6", {"00000000000000000000000001000000"})):
            with open(f"/proc/net/{name}") as table:
                listening = {line.split()[1].split(":")[0] for line in table
                             if line.split()[1].endswith(f":{address}") and line.split()[3] == "0A"}
            self.assertLessEqual(listening, own)

    def test_a_closed_connection_stops_its_work(self):
        server = self.start(self.tensors(queries=20000, keys=20000))
        _, path = self.input_of(server)
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(f"GET {path}/0.0/export?format=png&size=1024x1024 HTTP/1.1\r\nHost: localhost\r\n"
                           f"X-Fovea-Token: {server.token}\r\n\r\n".encode())
            time.sleep(0.05)
        start = time.monotonic()
        while server.get("/api/v1/counters")["connections"] > 1:
            self.assertLess(time.monotonic() - start, TIMEOUT_S)
        self.assertLess(time.monotonic() - start, 10 if SANITIZED else 0.5)


if __name__ == "__main__":
    unittest.main()
