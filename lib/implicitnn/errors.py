"""Errors and warnings raised by the library, each named for what went wrong."""


class InvalidActivationError(ValueError):
    """An activation's derivative or kinks contradict the function itself."""


class NotWellPosedError(ValueError):
    """No unique, attracting infinite-width fixed point exists for these parameters."""


class ScaleMismatchError(ValueError):
    """A network centred for one data scale is used with data of another."""


class UnsupportedSpecError(ValueError):
    """A formula was asked for a network outside its hypotheses."""


class AccuracyError(RuntimeError):
    """The requested accuracy could not be certified by any route."""


class AccuracyWarning(UserWarning):
    """A fast route missed its accuracy check and a slower exact one was taken."""


class DataNotFoundError(FileNotFoundError):
    """A data set lies in none of the places that were searched."""


class DataFileError(ValueError):
    """A data file is truncated, corrupt, or not what its name says."""


class DownloadError(OSError):
    """A data file could not be downloaded with the pinned hash."""


class NotEnoughSamplesError(ValueError):
    """More samples were asked for than a data set holds."""
