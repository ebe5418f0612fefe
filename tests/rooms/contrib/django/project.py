"""A Django project in a folder, as startproject makes it, with one app that takes orders."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from tests.helpers import ROOT, eventually
from tests.programs import free_ports

SETTINGS = """
import os

INSTALLED_APPS += ["nsqsmart.contrib.django", "shop"]
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
NSQSMART = {"default": {"URL": os.environ["SHOP_NSQ"], "OPTIONS": {"publish_timeout": 1}}}
DATABASES["default"]["ATOMIC_REQUESTS"] = True
if os.environ.get("SHOP_POSTGRES"):
    DATABASES["default"] |= {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["SHOP_DATABASE"],
        "USER": "postgres",
        "HOST": os.environ["SHOP_POSTGRES"],
    }
else:
    DATABASES["default"]["OPTIONS"] = {"timeout": 30, "transaction_mode": "IMMEDIATE"}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(levelname)s %(nsq_topic)s %(nsq_key)s %(message)s"}},
    "handlers": {
        "lost": {
            "class": "logging.FileHandler",
            "filename": BASE_DIR / "lost.log",
            "level": "ERROR",
            "formatter": "plain",
        }
    },
    "loggers": {"nsqsmart": {"handlers": ["lost"]}},
}
"""

APP = {
    "__init__.py": "",
    "apps.py": """
import os
from pathlib import Path

from django.apps import AppConfig


def note(sender, topic, body, arguments, error, **others):
    from nsqsmart.contrib.django import counts

    with Path("signals").open("ab") as file:
        file.write(b"%d %d %s\\n" % (os.getpid(), counts().failed, body))


class ShopConfig(AppConfig):
    name = "shop"

    def ready(self):
        from nsqsmart.contrib.django import publish_failed

        publish_failed.connect(note)
""",
    "models.py": """
from django.db import models


class Order(models.Model):
    number = models.IntegerField(unique=True)
""",
    "views.py": """
from django.http import HttpResponse

from nsqsmart.contrib.django import publish
from shop.models import Order


def order(request):
    number = int(request.GET["number"])
    Order.objects.create(number=number)
    publish("orders", b"%d" % number, key=f"customer-{number % 10}", when=request.GET["when"])
    if "fail" in request.GET:
        raise ValueError("this request is rolled back")
    return HttpResponse("ok")
""",
    "nsq.py": """
import os
import time
from pathlib import Path

from nsqsmart.contrib.django import handler


@handler("orders", "billing", workers=int(os.environ.get("SHOP_WORKERS", "2")))
def bill(message):
    with Path("billed").open("ab") as file:
        file.write(message.body + b"\\n")
    if message.body.startswith(b"slow") and message.attempts == 1:
        time.sleep(60)
""",
}

WSGI = """
from nsqsmart.contrib.django import producers

# With --preload, four workers inherit its connection.
producers["default"].ping()
"""

MIGRATE = """
import os

os.environ["DJANGO_SETTINGS_MODULE"] = "site_.settings"
import django
from django.core.management import call_command

django.setup()
call_command("makemigrations", "shop", verbosity=0)
call_command("migrate", verbosity=0)
"""


class Project:
    """A project in *folder*, for the servers at *url*; on PostgreSQL where a host is given.

    It is a copy of *template*, once that is there: its commands take a while.
    """

    def __init__(
        self, folder: Path, template: Path, url: str, postgres: str = "", database: str = ""
    ) -> None:
        self.folder = folder
        self.environment = {
            **{name: each for name, each in os.environ.items() if not name.startswith("NSQSMART_")},
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "SHOP_NSQ": url,
            "SHOP_POSTGRES": postgres,
            "SHOP_DATABASE": database,
        }
        if not template.exists():
            self._start(template)
        shutil.copytree(template, folder)
        if postgres:
            self.manage("migrate", "-v0")

    def _start(self, folder: Path) -> None:
        folder.mkdir()
        self._run("-m", "django", "startproject", "site_", ".", cwd=folder)
        (folder / "shop").mkdir()
        for name, text in APP.items():
            (folder / "shop" / name).write_text(text)
        with (folder / "site_" / "settings.py").open("a") as settings:
            settings.write(SETTINGS)
        (folder / "site_" / "urls.py").write_text(
            "from django.urls import path\n\nfrom shop.views import order\n\n"
            'urlpatterns = [path("order", order)]\n'
        )
        with (folder / "site_" / "wsgi.py").open("a") as wsgi:
            wsgi.write(WSGI)
        self._run("-c", MIGRATE, cwd=folder, SHOP_POSTGRES="")

    def _run(
        self, *arguments: str, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd or self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result

    def manage(self, *arguments: str) -> str:
        """Run ``manage.py`` to its end; what it printed."""
        return self._run("manage.py", *arguments).stdout

    @contextmanager
    def running(self, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """A Python program that is ended with the block; its output is in the file "output"."""
        with (self.folder / "output").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env={**self.environment, **environment},
                stdout=output,
                stderr=output,
            )
            try:
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(40)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    @contextmanager
    def served(self, *flags: str) -> Iterator[int]:
        """The port where gunicorn serves it."""
        (port,) = free_ports(1)
        arguments = ["-m", "gunicorn", "-b", f"127.0.0.1:{port}", "-w", "4", *flags]
        with self.running(*arguments, "site_.wsgi"):
            eventually(lambda: ask(port, "/none") == 404, 30, "gunicorn", 0.1)
            yield port

    def lines(self, name: str) -> list[str]:
        """Those of a file of the project; none if it is not there."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def orders(self) -> set[int]:
        """The numbers of the rows that were committed."""
        with closing(self._connect()) as connection:
            found = connection.execute("SELECT number FROM shop_order").fetchall()
        return {number for (number,) in found}

    def _connect(self) -> Any:
        """Not through Django, which takes a second to start."""
        if not self.environment["SHOP_POSTGRES"]:
            return sqlite3.connect(self.folder / "db.sqlite3", timeout=30)
        import psycopg

        return psycopg.connect(
            host=self.environment["SHOP_POSTGRES"],
            user="postgres",
            dbname=self.environment["SHOP_DATABASE"],
        )


def ask(port: int, path: str) -> int:
    """The status of GET *path*; 0 if there was no answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()


def ask_all(port: int, paths: list[str], threads: int = 8) -> list[int]:
    """The statuses of all *paths*, asked for by several threads."""
    waiting: SimpleQueue[str] = SimpleQueue()
    for path in paths:
        waiting.put(path)
    found: list[int] = []

    def work() -> None:
        while True:
            try:
                found.append(ask(port, waiting.get_nowait()))
            except Empty:
                return

    crew = [threading.Thread(target=work) for _ in range(threads)]
    for each in crew:
        each.start()
    for each in crew:
        each.join()
    return found
