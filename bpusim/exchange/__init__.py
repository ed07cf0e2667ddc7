"""Other people's traces: topologies, measured profiles and execution traces, in and out."""

from bpusim.exchange.chakra_read import import_chakra
from bpusim.exchange.chakra_write import export_chakra
from bpusim.exchange.profile import import_profile
from bpusim.exchange.scalesim import import_scalesim

__all__ = ["export_chakra", "import_chakra", "import_profile", "import_scalesim"]
