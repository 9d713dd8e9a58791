"""The documentation's site: pages made from the code, the build, and what holds them to the truth."""
