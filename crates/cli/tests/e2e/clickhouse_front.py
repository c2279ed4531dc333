"""The HTTP interface of a ClickHouse server around the real engine (chdb), as far as it is spoken to: a statement in
the URL or the body, settings in the URL, rows after INSERT … FORMAT, users, and errors with their code in a header.

    clickhouse_front.py DATA PORT USER PASSWORD

What a test wants to go wrong stands in DATA.json: {"delay": seconds before each statement, "lose": how many INSERTs are
done and not answered, "refuse": true}.
"""

import base64
import json
import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from chdb import session

DATA, PORT, USER, PASSWORD = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
NOT_SETTINGS = {"query", "database", "user", "password", "wait_end_of_query", "query_id", "default_format"}
STATUS = {60: 404, 81: 404, 516: 403, 62: 400, 27: 400, 47: 400, 159: 408}

engine = session.Session(DATA)
one_at_a_time = threading.Lock()


class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(f"Code: {code}. DB::Exception: {text}")


def wrong(spend=None):
    """What is to go wrong; `spend` uses one of a number up."""
    try:
        with open(DATA + ".json") as file:
            wanted = json.load(file)
    except FileNotFoundError:
        return {}
    if spend and wanted.get(spend, 0) > 0:
        left = dict(wanted, **{spend: wanted[spend] - 1})
        with open(DATA + ".json.new", "w") as file:
            json.dump(left, file)
        os.rename(DATA + ".json.new", DATA + ".json")
    return wanted


def literal(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def run(given, statement):
    settings = ", ".join(f"{key} = {literal(value)}" for key, value in given.items() if key not in NOT_SETTINGS)
    insert = re.match(r"\s*INSERT\s.*?\sFORMAT\s+\w+", statement, re.S | re.I)
    if insert and settings:
        head = insert.group(0)
        at = head.upper().rindex("FORMAT")
        statement = f"{head[:at]} SETTINGS {settings} {head[at:]}{statement[insert.end():]}"
    with one_at_a_time:
        engine.query("USE " + given.get("database", "default"))
        return bool(insert), engine.query(statement, given.get("default_format", "TabSeparated")).bytes()


class Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def allowed(self, given):
        user, key = self.headers.get("X-ClickHouse-User"), self.headers.get("X-ClickHouse-Key", "")
        basic = self.headers.get("Authorization", "")
        if basic.startswith("Basic "):
            user, _, key = base64.b64decode(basic[6:]).decode().partition(":")
        user, key = given.get("user", user or "default"), given.get("password", key)
        return (user, key) == (USER, PASSWORD)

    def answer(self, status, body, code=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-ClickHouse-Server-Display-Name", "front")
        if code is not None:
            self.send_header("X-ClickHouse-Exception-Code", str(code))
        self.end_headers()
        self.wfile.write(body)

    def handle_one(self):
        parts = urlsplit(self.path)
        given = dict(parse_qsl(parts.query))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if parts.path == "/ping":
            return self.answer(200, b"Ok.\n")
        try:
            if not self.allowed(given):
                raise Refused(516, f"{self.headers.get('X-ClickHouse-User')}: Authentication failed (AUTHENTICATION_FAILED)")
            if wrong().get("refuse"):
                raise Refused(252, "Too many parts (TOO_MANY_PARTS)")
            time.sleep(wrong().get("delay", 0))
            statement = given["query"] + "\n" + body if given.get("query") else body
            inserted, result = run(given, statement)
            if inserted and wrong("lose").get("lose", 0) > 0:
                self.close_connection = True
                return self.connection.shutdown(2)
            self.answer(200, result)
        except Exception as error:  # whatever the engine says is said to the client
            found = re.search(r"Code: (\d+)", str(error))
            code = int(found.group(1)) if found else 1002
            self.answer(STATUS.get(code, 500), (str(error) + "\n").encode(), code)

    do_GET = handle_one
    do_POST = handle_one


ThreadingHTTPServer.request_queue_size = 128
ThreadingHTTPServer(("127.0.0.1", PORT), Door).serve_forever()
