# SPDX-License-Identifier: Apache-2.0
"""Criterion 24 of the viewer: requests that no page of the server sends are refused, hold no memory, and disturb no
page."""

import pathlib
import socket
import time

import inputs
import pytest

WHOLE_S = 10  # for a request


@pytest.fixture(scope="module")
def server(module_viewer):
    path = module_viewer.folder / "run.safetensors"
    inputs.recording(path, inputs.random_layers(2, 2, 40, 8), inputs.words(40))
    return module_viewer(path)


def raw(server, lines, timeout=15):
    """Sends a request, and returns all that comes until the server closes or the response is complete."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as connection:
        connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        return until_closed(connection)


def until_closed(connection):
    found = b""
    try:
        while more := connection.recv(65536):
            found += more
    except ConnectionResetError:
        pass
    return found.decode(errors="replace")


def status_of(answer):
    return int(answer.split()[1]) if answer.startswith("HTTP/1.1 ") else None


def requests_of(server):
    """Returns {name: (lines, statuses)}."""
    host, token = f"Host: 127.0.0.1:{server.port}", f"X-Fovea-Token: {server.token}"
    inside = "GET /api/v1/inputs HTTP/1.1"
    return {
        "foreign host": ([inside, "Host: evil.example", token], [421]),
        "rebound host": ([inside, f"Host: 127.0.0.1.evil.example:{server.port}", token], [421]),
        "no host": ([inside, token], [400, 421]),
        "foreign origin": ([inside, host, token, "Origin: http://evil.example"], [403]),
        "other port": ([inside, host, token, "Origin: http://127.0.0.1:1"], [403]),
        "null origin": ([inside, host, token, "Origin: null"], [403]),
        "cross-site": ([inside, host, token, "Sec-Fetch-Site: cross-site"], [403]),
        "same-site": ([inside, host, token, "Sec-Fetch-Site: same-site"], [403]),
        "no token": ([inside, host], [401]),
        "wrong token": ([inside, host, f"X-Fovea-Token: {'0' * 32}"], [401]),
        "short token": ([inside, host, f"X-Fovea-Token: {server.token[:-1]}"], [401]),
        "token in the address": ([f"GET /api/v1/inputs?token={server.token} HTTP/1.1", host], [401]),
        "token in a cookie": ([inside, host, f"Cookie: token={server.token}"], [401]),
        "a file": (["GET /../etc/passwd HTTP/1.1", host], [404]),
        "an encoded path": (["GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1", host], [404]),
        "a path below assets": (["GET /assets/../../etc/passwd HTTP/1.1", host], [404]),
        "an unknown page": (["GET /unknown HTTP/1.1", host], [404]),
        "another method": (["POST /api/v1/inputs HTTP/1.1", host, token, "Content-Length: 0"], [405]),
        "TRACE": (["TRACE / HTTP/1.1", host], [404, 405, 501]),
        "9 KiB of fields": ([inside, host, token, f"X-Long: {'a' * 9216}"], [431, None]),
        "a long target": ([f"GET /{'a' * 5000} HTTP/1.1", host], [404, 413, 414]),
        "a large body": (
            ["POST /api/v1/inputs/x/0.0/pass HTTP/1.1", host, token, "Content-Length: 70000"],
            [413, None],
        ),
        "no HTTP": (["\x16\x03\x01\x02"], [400, None]),
    }


def test_refused_requests(server):
    assert status_of(raw(server, requests_of(server)["no token"][0])) == 401
    before = server.resident()
    for name, (lines, statuses) in requests_of(server).items():
        answer = raw(server, lines)
        assert status_of(answer) in statuses, (name, answer[:300])
        assert "root:" not in answer
        assert server.token not in answer, name
        assert "Access-Control" not in answer, name
    assert server.resident() - before < 1 << 20


def test_slow_requests_are_closed_and_the_page_works(server, opener):
    before = server.resident()
    slow = [socket.create_connection(("127.0.0.1", server.port), timeout=WHOLE_S + 5) for _ in range(8)]
    page = opener(server)
    page.get_by_text("run.safetensors").first.wait_for()
    text = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    start = time.monotonic()
    closed = {}
    for byte in text:
        for number, connection in enumerate(slow):
            if number not in closed:
                try:
                    connection.sendall(bytes([byte]))
                except OSError:
                    closed[number] = time.monotonic() - start
        if len(closed) == len(slow) or time.monotonic() - start > WHOLE_S + 3:
            break
        time.sleep(0.5)
    assert len(closed) == len(slow)
    # A closed connection is noticed by the second write after it.
    assert all(WHOLE_S - 1 < seconds < WHOLE_S + 2.5 for seconds in closed.values()), closed
    for connection in slow:
        connection.close()
    page.reload()
    page.get_by_text("run.safetensors").first.wait_for()
    assert server.resident() - before < 4 << 20  # the page's own requests are among them


def test_many_connections(server, opener):
    many = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(80)]
    time.sleep(0.2)
    assert server.process.poll() is None
    for connection in many:
        connection.close()
    time.sleep(0.2)
    assert server.counters()["connections"] == 1
    page = opener(server)
    page.get_by_text("run.safetensors").first.wait_for()


def test_other_machines_cannot_connect(server):
    own = {address[4][0] for address in socket.getaddrinfo(socket.gethostname(), None, family=socket.AF_INET)}
    for address in own - {"127.0.0.1"}:
        if address.startswith("127."):
            continue
        with pytest.raises(OSError):  # noqa: PT011  (refused, or no route)
            socket.create_connection((address, server.port), timeout=2).close()
    table = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    listening = [line.split()[1] for line in table if line.split()[3] == "0A"]
    addresses = [each.split(":")[0] for each in listening if int(each.split(":")[1], 16) == server.port]
    assert addresses == ["0100007F"]


def test_policy(server):
    for path in ("/", f"/map/{server.id()}/0.0"):
        status, fields, body = server.request(path, token=False)
        assert status == 200
        policy = fields["Content-Security-Policy"]
        for part in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
            assert part in policy, policy
        assert "unsafe-eval" not in policy
        assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
        assert fields["X-Content-Type-Options"] == "nosniff"
        assert fields["Referrer-Policy"] == "no-referrer"
        assert server.token.encode() not in body
        assert server.id().encode() not in body, "the shell names no input"


def test_a_frame_of_another_site_stays_empty(server, opener, tmp_path):
    page = opener.blank()
    opener.origins.append(server.origin)
    opener.expected += ["frame-ancestors", "refused to display", "X-Frame-Options", "chrome-error:"]
    (tmp_path / "frame.html").write_text(f'<iframe src="{server.url}"></iframe>')
    page.goto((tmp_path / "frame.html").as_uri())
    page.wait_for_timeout(500)
    assert all(not frame.url.startswith(server.origin) or not frame.locator("main").count() for frame in page.frames)


def test_a_page_without_the_token(server, opener):
    opener.expected.append("401")
    page = opener(server, token=False)
    page.get_by_text("address", exact=False).first.wait_for()
    assert page.get_by_text("run.safetensors").count() == 0
