# The names that other rooms import from here; `__init__.py` loads each at first use.

from . import (
    case_report as case_report,
    digest_text as digest_text,
    excuses_report as excuses_report,
    gate_report as gate_report,
    generator_report as generator_report,
    minimal_report as minimal_report,
    numeric_movement as numeric_movement,
    run_changes as run_changes,
    tolerance_report as tolerance_report,
    upgrade_report as upgrade_report,
)
from .case_report import verdict_data as verdict_data, verdict_table as verdict_table
from .catalogue_text import markdown as markdown
from .dashboard.site import write_site as write_site
from .defect_catalogue import catalogue as catalogue
from .digest_text import reuse_lines as reuse_lines
from .evidence import (
    evidence as evidence,
    evidence_of_row as evidence_of_row,
    fault_text as fault_text,
    group_data as group_data,
    place_text as place_text,
)
from .failures_text import (
    render as render,
    render_no_longer_failing as render_no_longer_failing,
)
from .reproduce import shown_path as shown_path
from .run_digest import digest as digest
from .session_lines import (
    Afterwords as Afterwords,
    ProgressLine as ProgressLine,
    duration as duration,
    header as header,
)
from .support_page.catalog import support_catalog as support_catalog
from .support_page.markdown_table import support_table as support_table
from .support_page.write_page import write_support_page as write_support_page
from .terminal_summary import print_summary as print_summary
