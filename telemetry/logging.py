"""Set up logging: constant event names with data in fields, written as JSON or as text for people."""

import logging

import structlog
from structlog.typing import EventDict, Processor

from exporter.redaction import redact_and_escape, shorten
from telemetry.choices import LogFormat, LogLevel

_LONGEST_VALUE = 1 << 16  # characters of a field; of a traceback as well


def configure_logging(log_format: LogFormat, level: LogLevel) -> None:
    """Send structlog's and the standard library's messages to standard error in one format."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    # No line names the thread or the process, so they need not be looked up.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(log_format)],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)


def _renderers(log_format: LogFormat) -> list[Processor]:
    if log_format is LogFormat.JSON:
        return [structlog.processors.format_exc_info, _shorten, structlog.processors.JSONRenderer(), _redact]
    plain = structlog.dev.plain_traceback
    return [_shorten, structlog.dev.ConsoleRenderer(colors=False, exception_formatter=plain), _redact]


def _shorten(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Cut long values, as those that repeat a stranger's text, before the line is made."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = shorten(value, _LONGEST_VALUE)
    return event


def _redact(_logger: object, _method: str, rendered: object) -> str:
    """Remove secrets from the finished line, the last step before it is written."""
    return redact_and_escape(str(rendered))


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger of a module; bind ids with structlog.contextvars.bound_contextvars."""
    bound: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return bound
