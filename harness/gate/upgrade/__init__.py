"""What moved when something that takes part was upgraded: goldens and baseline with what is installed now."""
