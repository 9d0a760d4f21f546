"""The server: its responses, its clients, and its error messages."""

import json
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from view_nets import DATA, make_conv

from caffejax.base.errors import CaffejaxError, SchemaError
from caffejax.tools.view import serve


class NetServer:
    """A net that is served from a thread."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.server: ThreadingHTTPServer
        ready = threading.Event()

        def on_listening(server: ThreadingHTTPServer) -> None:
            self.server = server
            ready.set()

        self.thread = threading.Thread(target=serve, args=(file,), kwargs={"on_listening": on_listening})
        self.thread.start()
        assert ready.wait(30)
        self.port = self.server.server_port

    def get(self, path: str, host: str | None = None, **headers: str) -> tuple[HTTPResponse, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.putrequest("GET", path, skip_host=True)
        for name, value in {"Host": host or f"127.0.0.1:{self.port}", **headers}.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response, content

    def edit(self, text: str) -> None:
        time.sleep(0.02)  # so that the file's time differs
        self.file.write_text(text)

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()


NET = f"{DATA}\n{make_conv('c', 'data')}"


@pytest.fixture
def net_server(tmp_path: Path) -> Iterator[NetServer]:
    (tmp_path / "net.prototxt").write_text(NET)
    server = NetServer(tmp_path / "net.prototxt")
    yield server
    server.stop()


def test_the_page_and_the_net_are_served(net_server: NetServer) -> None:
    response, content = net_server.get("/")
    assert response.status == 200
    assert b"connect-src 'self'" in content
    response, content = net_server.get("/net.json")
    assert [layer["name"] for layer in json.loads(content)["phases"]["TEST"]["layers"]] == ["data", "c"]
    assert net_server.server.server_address[0] == "127.0.0.1"


def test_an_edit_is_served_and_unchanged_nets_are_not_sent_again(net_server: NetServer) -> None:
    version = net_server.get("/net.json")[0].getheader("ETag") or ""
    response, content = net_server.get("/net.json", If_None_Match=version)
    assert (response.status, content) == (304, b"")
    net_server.edit(f"{NET}\n{make_conv('d', 'c')}")
    response, content = net_server.get("/net.json", If_None_Match=version)
    assert response.status == 200
    assert json.loads(content)["phases"]["TRAIN"]["layers"][-1]["name"] == "d"
    net_server.edit(f"{NET} layer {{")
    assert "ends inside" in json.loads(net_server.get("/net.json")[1])["problems"][0]["message"]
    net_server.file.unlink()
    response, content = net_server.get("/net.json")
    assert response.status == 500
    assert b"no such file" in content
    net_server.edit(NET)
    assert net_server.get("/net.json")[0].getheader("ETag") == version


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", "127.0.0.1.evil:{port}"]
)
def test_requests_in_the_name_of_other_hosts_are_refused(net_server: NetServer, host: str) -> None:
    response, content = net_server.get("/net.json", host=host.format(port=net_server.port))
    assert response.status == 403
    assert b"layers" not in content


@pytest.mark.parametrize("path", ["/../net.prototxt", "/net.prototxt", "/etc/passwd", "/%2e%2e/x", "/?x"])
def test_other_paths_are_not_found(net_server: NetServer, path: str) -> None:
    assert net_server.get(path)[0].status == 404
    assert net_server.get("/", host=f"localhost:{net_server.port}")[0].status == 200


def test_a_used_port_and_a_missing_file_are_refused(net_server: NetServer, tmp_path: Path) -> None:
    with pytest.raises(CaffejaxError, match=f"cannot listen on 127.0.0.1:{net_server.port}.*--port"):
        serve(net_server.file, net_server.port)
    with pytest.raises(SchemaError, match="no such file"):
        serve(tmp_path / "absent.prototxt")
