"""The components of an agent: their names, number and placement (`layout`), and construction (`build`).

Imported by `nodes` and `pipeline`, which both construct components.
"""
