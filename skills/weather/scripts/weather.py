#!/usr/bin/env python3
"""Prints the weather at a place from open services that need no key."""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

GEOCODING = "OPEN_METEO_GEOCODING_URL"
FORECAST = "OPEN_METEO_URL"
WTTR = "WTTR_URL"
_ADDRESSES = {
    GEOCODING: "https://geocoding-api.open-meteo.com/v1/search",
    FORECAST: "https://api.open-meteo.com/v1/forecast",
    WTTR: "https://wttr.in",
}
"""Where the services are; a variable of the environment names another address."""

SECONDS = 12.0
MAX_BYTES = 2_000_000

_NOW = "temperature_2m,apparent_temperature,relative_humidity_2m,precipitation,weather_code,wind_speed_10m"
_DAILY = (
    "weather_code,temperature_2m_max,temperature_2m_min,precipitation_sum,precipitation_probability_max,"
    "wind_speed_10m_max,sunrise,sunset"
)
_SKIES = {
    0: "clear sky", 1: "mainly clear", 2: "partly cloudy", 3: "overcast", 45: "fog", 48: "freezing fog",
    51: "light drizzle", 53: "drizzle", 55: "heavy drizzle", 56: "freezing drizzle", 57: "heavy freezing drizzle",
    61: "light rain", 63: "rain", 65: "heavy rain", 66: "freezing rain", 67: "heavy freezing rain",
    71: "light snow", 73: "snow", 75: "heavy snow", 77: "snow grains", 80: "light showers", 81: "showers",
    82: "violent showers", 85: "snow showers", 86: "heavy snow showers", 95: "thunderstorm",
    96: "thunderstorm with hail", 99: "thunderstorm with heavy hail",
}  # fmt: skip
"""The WMO codes that Open-Meteo uses."""


class Trouble(Exception):
    """A service could not say; the text is for the person."""


class NoSuchPlace(Trouble):
    """The service works, but knows no such place."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where it is; `others` are places of the same name."""

    name: str
    latitude: float
    longitude: float
    others: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The weather in words. `now` and each day: what is measured, by name."""

    source: str
    place: str
    now: Mapping[str, str]
    days: Sequence[Mapping[str, str]]
    others: Sequence[str] = ()


def main() -> None:
    arguments = _arguments()
    try:
        report = _report(arguments)
    except Trouble as trouble:
        print(f"weather: {trouble}", file=sys.stderr)
        sys.exit(2)
    text = json.dumps(_plain(report), ensure_ascii=False, indent=1) if arguments.json else _text(report)
    sys.stdout.buffer.write(f"{text}\n".encode(errors="replace"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Print the weather now and in the next days.",
        epilog='Write a negative position as: --at="-33.9,18.4"',
    )
    parser.add_argument(
        "place", nargs="?", default="", help='a town, best with its country: "Springfield, US"'
    )
    parser.add_argument("--at", metavar="LAT,LON", type=_position, help="a position instead of a town")
    parser.add_argument("--days", type=int, default=3, choices=range(1, 8), help="days to look ahead (3)")
    parser.add_argument("--units", choices=("metric", "imperial"), default="metric")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    if bool(arguments.place.strip()) == bool(arguments.at):
        parser.error("say either a place or --at LAT,LON")
    return arguments


def _position(text: str) -> Place:
    try:
        latitude, longitude = map(float, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 52.5,13.4") from None
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise argparse.ArgumentTypeError("latitude goes from -90 to 90, longitude from -180 to 180")
    return Place(f"{latitude:g}, {longitude:g}", latitude, longitude)


def _report(arguments: argparse.Namespace) -> Report:
    """Return what the first service that answers says."""
    try:
        place = arguments.at or _find(arguments.place)
        return _open_meteo(place, arguments.days, arguments.units)
    except NoSuchPlace:
        raise
    except Trouble as first:
        try:
            asked = f"{arguments.at.latitude},{arguments.at.longitude}" if arguments.at else arguments.place
            return _wttr(asked, arguments.days, arguments.units)
        except Trouble as second:
            raise Trouble(
                f"no weather service could be asked ({first}; {second}). The weather is not known: say so, don't guess"
            ) from None


def _find(text: str) -> Place:
    """Return the place that is meant: of several with the name, the one in the country that was said."""
    name, _, country = (part.strip() for part in text.partition(","))
    found = _get(GEOCODING, "", {"name": name, "count": 10, "format": "json"}).get("results") or []
    named = [one for one in found if country.casefold() in _words(one)] if country else found
    if not named:
        hint = f"; there is: {'; '.join(map(_full, found[:5]))}" if found else ""
        raise NoSuchPlace(f"no place called {text!r} is known{hint}")
    best = named[0]
    return Place(
        _full(best), float(best["latitude"]), float(best["longitude"]), [_full(one) for one in named[1:4]]
    )


def _words(found: Mapping[str, Any]) -> set[str]:
    return {str(found.get(key, "")).casefold() for key in ("country", "country_code", "admin1", "admin2")}


def _full(found: Mapping[str, Any]) -> str:
    return ", ".join(str(found[key]) for key in ("name", "admin1", "country") if found.get(key))


def _open_meteo(place: Place, days: int, units: str) -> Report:
    query: dict[str, object] = {
        "latitude": place.latitude,
        "longitude": place.longitude,
        "current": _NOW,
        "daily": _DAILY,
        "forecast_days": days,
        "timezone": "auto",
    }
    if units == "imperial":
        query |= {"temperature_unit": "fahrenheit", "wind_speed_unit": "mph", "precipitation_unit": "inch"}
    found = _get(FORECAST, "", query)
    try:
        now, daily = found["current"], found["daily"]
        signs = {**found["current_units"], **found["daily_units"]}
        return Report(
            "open-meteo.com",
            place.name,
            {"time": str(now["time"]).replace("T", " "), **_measured(now, signs)},
            [
                {"date": day, **_measured({key: values[at] for key, values in daily.items()}, signs)}
                for at, day in enumerate(daily["time"])
            ],
            place.others,
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise Trouble(f"open-meteo.com answered in an unknown form ({error!r})") from error


_NAMES = {
    "temperature_2m": "temperature",
    "apparent_temperature": "feels like",
    "relative_humidity_2m": "humidity",
    "precipitation": "precipitation",
    "wind_speed_10m": "wind",
    "temperature_2m_min": "lowest",
    "temperature_2m_max": "highest",
    "precipitation_sum": "precipitation",
    "precipitation_probability_max": "chance of it",
    "wind_speed_10m_max": "wind up to",
}


def _measured(values: Mapping[str, Any], signs: Mapping[str, str]) -> dict[str, str]:
    """Return what was measured, in words and with units; what is missing is left out."""
    said = {}
    if (code := values.get("weather_code")) is not None:
        said["sky"] = _SKIES.get(int(code), f"weather code {code}")
    for key, name in _NAMES.items():
        if values.get(key) is not None:
            said[name] = f"{values[key]:g} {signs.get(key, '')}".strip()
    for key in ("sunrise", "sunset"):
        if values.get(key):
            said[key] = str(values[key]).rpartition("T")[2]
    return said


def _wttr(place: str, days: int, units: str) -> Report:
    found = _get(WTTR, f"/{quote(place, safe=',')}", {"format": "j1"})
    degrees, speed = ("F", "Miles") if units == "imperial" else ("C", "Kmph")
    try:
        now, area = found["current_condition"][0], found["nearest_area"][0]
        name = ", ".join(area[key][0]["value"] for key in ("areaName", "country"))
        return Report(
            "wttr.in",
            name,
            {
                "time": str(now.get("localObsDateTime", "")),
                "sky": now["weatherDesc"][0]["value"].strip().lower(),
                "temperature": f"{now[f'temp_{degrees}']} °{degrees}",
                "feels like": f"{now[f'FeelsLike{degrees}']} °{degrees}",
                "humidity": f"{now['humidity']} %",
                "wind": f"{now[f'windspeed{speed}']} {'mph' if units == 'imperial' else 'km/h'}",
            },
            [
                {
                    "date": day["date"],
                    "sky": day["hourly"][len(day["hourly"]) // 2]["weatherDesc"][0]["value"].strip().lower(),
                    "lowest": f"{day[f'mintemp{degrees}']} °{degrees}",
                    "highest": f"{day[f'maxtemp{degrees}']} °{degrees}",
                }
                for day in found["weather"][:days]
            ],
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise Trouble(f"wttr.in answered in an unknown form ({error!r})") from error


def _get(service: str, path: str, query: Mapping[str, object]) -> dict[str, Any]:
    """Return the JSON object that a service answers. Raises: Trouble."""
    address = os.environ.get(service) or _ADDRESSES[service]
    host = address.partition("://")[2].partition("/")[0]
    request = urllib.request.Request(
        f"{address}{path}?{urlencode(query)}", headers={"User-Agent": "crayfish"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            found = json.loads(answer.read(MAX_BYTES))
    except urllib.error.HTTPError as error:
        raise Trouble(f"{host} answered {error.code}") from error
    except (OSError, ValueError) as error:
        raise Trouble(f"{host} can't be reached: {getattr(error, 'reason', None) or error}") from error
    if not isinstance(found, dict):
        raise Trouble(f"{host} answered in an unknown form")
    return found


def _text(report: Report) -> str:
    now = {**report.now}
    lines = [f"{report.place} (from {report.source})", f"Now ({now.pop('time')}): {_listed(now)}"]
    for day in report.days:
        rest = {**day}
        lines.append(f"{rest.pop('date')}: {_listed(rest)}")
    if report.others:
        lines.append(f"Other places of that name: {'; '.join(report.others)}")
    return "\n".join(lines)


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(value if name == "sky" else f"{name} {value}" for name, value in values.items())


def _plain(report: Report) -> dict[str, object]:
    return {
        "source": report.source,
        "place": report.place,
        "now": report.now,
        "days": report.days,
        "other_places": report.others,
    }


if __name__ == "__main__":
    main()
