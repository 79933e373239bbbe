"""The components of an agent: their names, number and placement (`layout`), and construction (`build`).

`stage` has the interface of the optional stages between them. Imported by `nodes` and `pipeline`, which both construct
components.
"""
