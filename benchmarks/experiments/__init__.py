"""Experiments 1 to 5 of the paper on RADICAL-Pilot: simulated at their sizes, and run on this machine at its size.

Source: Merzky, Turilli, Titov, Al-Saadi, Jha, *Design and Performance Characterization of RADICAL-Pilot on
Leadership-class Platforms*, section IV. Sections and figures are named as there.
"""
