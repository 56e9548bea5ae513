"""`make demo`: the whole story on real data, in about two minutes. An act is a module of `demo.acts`."""
