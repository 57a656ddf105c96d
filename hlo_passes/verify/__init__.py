"""The verifier: what XLA's parser and verifier would refuse, with its place.

    for finding in hlo_passes.verify.findings(module):
        print(finding.render())

Codes by hundreds: V0 names, uses, order; V1 attributes; V2 unknown opcodes; V3
collectives; V4 shapes, layouts, literals; V5 asynchronous pairs and channels; V6 called
computations; V7 header; V8 shardings and origins; V9 buffers. One file per subject.
"""

from hlo_passes.verify.finding import Finding
from hlo_passes.verify.verifier import findings, verify

__all__ = ["Finding", "findings", "verify"]
