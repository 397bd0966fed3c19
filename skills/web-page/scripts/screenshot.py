#!/usr/bin/env python3
"""Makes a picture of a web page with Chromium."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fetch import Trouble


def main() -> None:
    arguments = _arguments()
    try:
        path: Path = arguments.file.expanduser()
        if path.exists():
            raise Trouble(f"{path} is there already; take another name")
        title, data = _picture(arguments)
        path.write_bytes(data)
        print(f"saved {path} ({len(data):,} bytes): {title}")
    except Trouble as trouble:
        sys.exit(_told(str(trouble)))
    except OSError as error:
        sys.exit(_told(f"{error.filename or arguments.file} can't be written ({error.strerror})"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Save a picture (PNG) of a web page.")
    parser.add_argument("url", help="http:// or https:// address on the public internet")
    parser.add_argument("file", type=Path, help="full path of the new .png file")
    parser.add_argument(
        "--width", type=int, default=1280, help="of the window, in pixels (1280; a phone has 390)"
    )
    parser.add_argument("--height", type=int, default=800, help="of the window, in pixels (800)")
    parser.add_argument("--full", action="store_true", help="the whole page, not only what the window shows")
    arguments = parser.parse_args()
    if not (200 <= arguments.width <= 4000 and 200 <= arguments.height <= 4000):
        parser.error("--width and --height go from 200 to 4000")
    return arguments


def _picture(arguments: argparse.Namespace) -> tuple[str, bytes]:
    """Return the page's title and the picture."""
    if sys.platform == "win32":
        raise Trouble("pictures are made on Linux and macOS only")
    import chromium

    with chromium.page(arguments.url, arguments.width, arguments.height) as page:
        height = None if arguments.full else arguments.height
        return str(page.run("document.title")), page.picture(arguments.width, height)


def _told(problem: str) -> int:
    print(f"screenshot: {problem}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
