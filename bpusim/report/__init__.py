"""Results for people and programs: tables and files."""

from bpusim.report.files import check_folder, streams_csv, summary_json, write_folder

__all__ = ["check_folder", "streams_csv", "summary_json", "write_folder"]
