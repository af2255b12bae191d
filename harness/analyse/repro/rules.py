"""The user's conversion functions that took part in a failure, for a script that shows it."""

from __future__ import annotations

from harness.analyse.repro.failure import ReproducibleFailure
from harness.convert import RuleProblem, RuleSource, load_rules, rule_source


def rules_of(failure: ReproducibleFailure) -> tuple[dict[str, str], RuleSource]:
    """Overload → the name of the function that converts it, and the source of these functions.

    Raises:
        RuleProblem: a file of rules is not there any more, or cannot be loaded.
        NotSeparable: a rule is no function of its own.
    """
    labels = set(failure.rule.split(", ")) - {""}
    files = {file.name: file for file in failure.rule_files}
    chosen = sorted({label.partition(":")[0] for label in labels})
    lost = [name for name in chosen if name not in files]
    if lost:
        raise RuleProblem(
            f"it was converted by the rule {failure.rule}; say where {' and '.join(lost)} is: --rules FILE"
        )
    functions: dict[str, str] = {}
    imports: list[str] = []
    code: list[str] = []
    for name in chosen:
        rules = [r for r in load_rules(str(files[name])) if r.converter == failure.converter]
        mine = [rule for rule in rules if rule.label in labels]
        functions |= {rule.overload: rule.name for rule in mine}
        found = rule_source(files[name], sorted({rule.name for rule in mine}))
        imports += found.imports
        code += [*(["", ""] if code else []), *found.code]
    return functions, RuleSource(tuple(imports), tuple(code))
