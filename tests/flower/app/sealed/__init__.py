"""The app of the deployment's tests: that of tests/support/flower_app.py, as Flower packs and sends it."""
