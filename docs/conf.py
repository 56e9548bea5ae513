"""How Sphinx makes the site of the documents: it reads the whole repository, so each link leads where it says."""

from pathlib import Path

project = "Headwater"
html_title = "Headwater"
root_doc = "docs/index"
include_patterns = ["*.md", "deploy/*.md", "docs/**.md", "tests/interop/README.md"]
exclude_patterns = [".*", "build", "src", "**/node_modules"]  # folders without a page take time

extensions = ["myst_parser"]
myst_heading_anchors = 6  # those that GitHub makes
suppress_warnings = ["toc.not_included"]  # a page is found by links and the search too

html_theme = "furo"
html_extra_path = ["site"]
html_search_scorer = str(Path(__file__).with_name("search_scorer.js"))
html_show_search_summary = False  # a search that shows text has to fetch pages, which browsers forbid from disk
html_copy_source = False
html_use_index = False
html_show_sphinx = False
