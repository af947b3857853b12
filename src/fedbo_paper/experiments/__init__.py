"""The paper's experiments: run, judged, drawn, and compared with what its authors published."""
