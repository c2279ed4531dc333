"""Reads OpenMetrics text with a parser that we did not write, and writes the families as JSON."""

import json
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

families = text_string_to_metric_families(sys.stdin.read())
json.dump(
    [
        {"name": f.name, "type": f.type, "help": f.documentation, "samples": [[s.name, s.labels, s.value] for s in f.samples]}
        for f in families
    ],
    sys.stdout,
)
