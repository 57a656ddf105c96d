"""The verifier: what XLA's parser and verifier would refuse, and where it is.

    for finding in hlo_passes.verify.findings(module):
        print(finding.render())

Codes by hundreds: V0 names, uses, order; V1 attributes; V2 unknown opcodes; V3
collectives; V4 shapes, layouts, literals; V5 asynchronous pairs and channels; V6 called
computations; V7 header; V8 shardings and origins; V9 buffers. Each subject has its own
file.
"""

from hlo_passes.verify.finding import Finding
from hlo_passes.verify.verifier import findings, verify

__all__ = ["Finding", "findings", "verify"]
