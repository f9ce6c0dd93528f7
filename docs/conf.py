import pymc_gibbsnn

project = "pymc_gibbsnn"
author = "the pymc_gibbsnn developers"
version = release = pymc_gibbsnn.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.mathjax", "numpydoc"]
autosummary_generate = True
autodoc_typehints = "none"
suppress_warnings = ["ref.citation"]
numpydoc_show_class_members = False
numpydoc_validation_checks = {"PR01", "PR02"}
# The signature of a distribution is that of pm.Distribution: a name, then its parameters.
numpydoc_validation_exclude = {r"\.ArgmaxLabel$", r"\.SignLabel$"}
html_theme = "furo"
exclude_patterns = ["_build"]
