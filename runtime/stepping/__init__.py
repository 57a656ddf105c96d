"""Runs a module step by step, for `hlo-passes run --sync=each|collectives`.

ENTRY %e {                                   step 1, one program:
  %a = f32[8] cosine(%p)                       %a = cosine(%p)
  %b = f32[8] all-reduce(%a)                   ROOT %b = all-reduce(%a)
  %w = f32[8] while(%b), body=%f               (every device has come this far)
  ROOT %d = f32[8] negate(%w)                steps of %f, once for each iteration
}                                            last step: ROOT %d = negate(%w)
"""
