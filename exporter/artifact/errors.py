"""The error of a manifest that is wrong before it is published."""

from exporter.errors import ExportError


class ManifestWrong(ExportError):
    """The manifest, or a tower's entry in it, does not describe what passed the gate and was uploaded."""

    code = "manifest_wrong"
    advice = "nothing was published; report the message with the job's log"
