"""The components of an agent: their names, how many there are and where (`layout`), and how they are made (`build`).

Stands below `nodes` and `pipeline`, which both make components.
"""
