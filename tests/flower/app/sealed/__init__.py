"""The app of the deployment's tests: that of tests/support/flower/app.py, as Flower packs and sends it."""
